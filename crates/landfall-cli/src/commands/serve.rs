//! `landfall serve`: the daemon.

use clap::Args;

use super::sources::Sources;
use crate::config::{Config, Flag};
use crate::daemon::{Daemon, Roles, signals};
use crate::error::{Error, Result};
use crate::logging;

/// Run the daemon: publish what is committed to the outbox, and answer over HTTP.
///
/// Without anything it keeps a SQLite database and the embedded log under ./landfall-data and listens on
/// 127.0.0.1:7700. SIGTERM or Ctrl-C stops it after what is in flight; a second one at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall serve
  landfall serve --database-url postgres://shop@db/shop --broker-url log:/var/lib/landfall/log
  landfall serve --config /etc/landfall.toml --listen 127.0.0.1:0

Try it, in another terminal:
  curl -d '{\"topic\": \"orders\", \"key\": \"42\", \"payload\": {\"total\": 10}}' http://127.0.0.1:7700/v1/messages
  landfall topic tail orders

Listening anywhere but on loopback needs tokens under [auth] in the configuration.")]
pub(crate) struct Serve {
    /// Where to listen; port 0 picks a free one, which the ready line names.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// What this daemon does, separated by commas: relay (publish the outbox), push (post the subscriptions).
    #[arg(long, value_name = "ROLES", value_delimiter = ',', default_value = "relay,push")]
    roles: Vec<String>,
    #[command(flatten)]
    sources: Sources,
}

/// Part of the command's contract, and not of this build.
const LATER_ROLES: [&str; 2] = ["check-back", "console"];

impl Serve {
    pub(crate) async fn run(self) -> Result<()> {
        let roles = roles(&self.roles)?;
        let listen = self.listen.as_ref().map(|listen| Flag::new("--listen", "http.listen", listen));
        let config = self.sources.load_with(listen)?;
        refuse_open_door(&config)?;
        config.retention_plan().check()?;
        logging::start(&config.log);

        let stop = signals::watch()?;
        let daemon = tokio::select! {
            daemon = Daemon::start(&config, roles, stop.clone()) => daemon?,
            () = stop.cancelled() => return Ok(()),
        };
        daemon.run().await
    }
}

fn roles(names: &[String]) -> Result<Roles> {
    let mut roles = Roles { relay: false, push: false };
    for role in names.iter().map(|role| role.trim()) {
        match role {
            "relay" => roles.relay = true,
            "push" => roles.push = true,
            _ if LATER_ROLES.contains(&role) => {
                let sentence = format!("this build cannot take the role {role} yet; it knows relay and push");
                return Err(Error::wrong_use(sentence));
            }
            _ => {
                return Err(Error::wrong_use(format!(
                    "there is no role {role:?}; the roles are relay, push and, not in this build yet, {}",
                    LATER_ROLES.join(", ")
                )));
            }
        }
    }
    Ok(roles)
}

/// Whoever can reach the port can send messages, so that others than this machine's own programs need a token.
fn refuse_open_door(config: &Config) -> Result<()> {
    let listen = config.http.listen;
    if listen.ip().to_canonical().is_loopback() || !config.auth.tokens.is_empty() {
        return Ok(());
    }
    Err(Error::wrong_use(format!(
        "listening on {listen} would let anybody in who can reach it; add tokens under [auth] or listen on 127.0.0.1"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_open_without_tokens() {
        let listening = |address: &str| {
            let mut config = Config::default();
            config.http.listen = address.parse().unwrap();
            refuse_open_door(&config)
        };
        for loopback in ["127.0.0.1:7700", "127.8.8.8:1", "[::1]:7700", "[::ffff:127.0.0.1]:7700"] {
            assert!(listening(loopback).is_ok(), "{loopback} was refused");
        }
        for open in ["0.0.0.0:7700", "[::]:7700", "192.168.1.5:7700"] {
            assert!(listening(open).is_err(), "{open} was accepted");
        }
    }

    #[test]
    fn roles_of_later_builds_are_known_by_name() {
        assert_eq!(roles(&["relay".into()]).unwrap(), Roles { relay: true, push: false });
        assert_eq!(roles(&["push".into(), " relay".into()]).unwrap(), Roles { relay: true, push: true });
        let refusal = |role: &str| roles(&["relay".into(), role.into()]).unwrap_err().to_string();
        assert_eq!(refusal("console"), "this build cannot take the role console yet; it knows relay and push");
        assert!(refusal("boss").starts_with("there is no role \"boss\""));
    }
}
