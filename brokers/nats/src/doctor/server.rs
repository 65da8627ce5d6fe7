//! What a server is set to, as far as its monitoring tells, and how it is reached.

use landfall_core::{ClockSkew, Finding, Rank};

use super::monitor::{Server, ask};
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
            "The connection leaves this machine unencrypted: whoever stands in between reads the credentials and can \
               take messages away."
                .into(),
        mend: "tls { … } in the server's configuration, and tls=true in the broker URL".into(),
    }]
}

pub(super) async fn syncing_and_clock(options: &Options) -> Vec<Finding> {
    let Some(addresses) = &options.monitor else {
        let why = "The URL names no monitoring (monitor=http://host:8222), which is the only one to tell";
        return vec![unseen("the server", why)];
    };
    let mut found = Vec::new();
    for address in addresses.split(',') {
        match ask(address, options.timeout).await {
            Ok(server) => {
                found.extend(syncing(address, &server));
                found.extend(clock(address, server.skew));
            }
            Err(error) => found.push(unseen(address, &format!("Its monitoring does not answer ({error})"))),
        }
    }
    found
}

fn syncing(address: &str, server: &Server) -> Option<Finding> {
    (!server.sync_always).then(|| Finding {
        check: "nats.sync-interval",
        rank: Rank::Loss,
        about: address.to_owned(),
        what: format!(
            "The server acknowledges messages before they are on disk and syncs every {:?}: a power cut or a crash of \
             the operating system takes back what was accepted since.",
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
            "The server's clock is {skew}: ages, the duplicate window and reading from a time are off by as much."
        ),
        mend: "let both keep their clocks with NTP".into(),
    })
}

fn unseen(about: &str, why: &str) -> Finding {
    Finding {
        check: "nats.sync-not-visible",
        rank: Rank::Loss,
        about: about.to_owned(),
        what: format!(
            "{why} whether the server syncs before it acknowledges. By default it does not, and a power cut takes back \
             what was accepted in the last two minutes."
        ),
        mend: "http: 8222 and jetstream { sync_interval: always } in the configuration of every server, and \
               monitor=http://host:8222 in the broker URL, with commas between several"
            .into(),
    }
}
