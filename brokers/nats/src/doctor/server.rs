//! Checks of the transport, and of the server's sync setting and clock.

use landfall_core::adapter::ClockSkew;
use landfall_core::{Finding, Rank};

use super::monitor::{Server, fetch};
use crate::config::Options;

pub(super) fn transport(options: &Options, is_loopback: bool) -> Vec<Finding> {
    if options.tls || is_loopback {
        return Vec::new();
    }
    vec![Finding {
        check: "nats.no-tls",
        rank: Rank::Loss,
        about: options.servers.join(","),
        what:
            "The connection leaves this machine unencrypted: an attacker on the network can read the credentials and \
               remove messages."
                .into(),
        mend: "tls { … } in the server's configuration, and tls=true in the broker URL".into(),
    }]
}

pub(super) async fn sync_and_clock(options: &Options) -> Vec<Finding> {
    let Some(addresses) = &options.monitor else {
        let why = "The URL sets no monitoring endpoint (monitor=http://host:8222). Only this endpoint reports";
        return vec![not_visible("the server", why)];
    };
    let mut findings = Vec::new();
    for address in addresses.split(',') {
        match fetch(address, options.timeout).await {
            Ok(server) => {
                findings.extend(sync_interval(address, &server));
                findings.extend(clock(address, server.skew));
            }
            Err(error) => {
                findings.push(not_visible(address, &format!("Its monitoring endpoint does not report ({error})")))
            }
        }
    }
    findings
}

fn sync_interval(address: &str, server: &Server) -> Option<Finding> {
    (!server.sync_always).then(|| Finding {
        check: "nats.sync-interval",
        rank: Rank::Loss,
        about: address.to_owned(),
        what: format!(
            "The server acknowledges messages before they are on disk and syncs every {:?}: a power failure or a crash \
             of the operating system loses the messages accepted since.",
            server.sync_interval
        ),
        mend: "jetstream { sync_interval: always } in the server's configuration".into(),
    })
}

fn clock(address: &str, skew: ClockSkew) -> Option<Finding> {
    (!skew.is_tolerable()).then(|| Finding {
        check: "nats.clock-skew",
        rank: Rank::Duplicates,
        about: address.to_owned(),
        what: format!(
            "The server's clock is {skew}: retention, the duplicate window and seeking by time are off by as much."
        ),
        mend: "synchronize both clocks with NTP".into(),
    })
}

fn not_visible(about: &str, why: &str) -> Finding {
    Finding {
        check: "nats.sync-not-visible",
        rank: Rank::Loss,
        about: about.to_owned(),
        what: format!(
            "{why} whether the server syncs before it acknowledges. By default it does not, and a power failure loses \
             the messages accepted in the last two minutes."
        ),
        mend: "http: 8222 and jetstream { sync_interval: always } in the configuration of every server, and \
               monitor=http://host:8222 in the broker URL, with commas between several"
            .into(),
    }
}
