//! `landfall serve`: the daemon.

use clap::Args;

use super::sources::Sources;
use crate::config::{Config, Flag};
use crate::daemon::{Daemon, Roles, signals};
use crate::error::{Error, Result};
use crate::logging;

/// Run the daemon: relay the outbox to the broker, push subscriptions, and serve HTTP.
///
/// Without any configuration it keeps a SQLite database and the embedded log under ./landfall-data and listens on
/// 127.0.0.1:7700. SIGTERM or Ctrl-C stops it after work in flight is finished; a second signal stops it at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall serve
  landfall serve --database-url postgres://shop@db/shop --broker-url log:/var/lib/landfall/log
  landfall serve --config /etc/landfall.toml --listen 127.0.0.1:0

Send and read a message, in another terminal:
  curl -d '{\"topic\": \"orders\", \"key\": \"42\", \"payload\": {\"total\": 10}}' http://127.0.0.1:7700/v1/messages
  landfall topic tail orders

Listening on any address but loopback requires tokens under [auth] in the configuration.")]
pub(crate) struct Serve {
    /// Address and port to listen on; port 0 picks a free one, which the ready line names.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Roles of this daemon, separated by commas: relay (publish the outbox), push (post to subscriptions), check-back
    /// (resolve half messages), console (the web pages).
    #[arg(long, value_name = "ROLES", value_delimiter = ',', default_value = "relay,push,check-back,console")]
    roles: Vec<String>,
    #[command(flatten)]
    sources: Sources,
}

impl Serve {
    pub(crate) async fn run(self) -> Result<()> {
        let roles = roles(&self.roles)?;
        let listen = self.listen.as_ref().map(|listen| Flag::new("--listen", "http.listen", listen));
        let config = self.sources.load_with(listen)?;
        require_tokens_beyond_loopback(&config)?;
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
    let mut roles = Roles { relay: false, push: false, check_back: false, console: false };
    for role in names.iter().map(|role| role.trim()) {
        match role {
            "relay" => roles.relay = true,
            "push" => roles.push = true,
            "check-back" => roles.check_back = true,
            "console" => roles.console = true,
            _ => {
                let known = "relay, push, check-back and console";
                return Err(Error::usage(format!("unknown role {role:?}; the roles are {known}")));
            }
        }
    }
    Ok(roles)
}

/// Requires tokens for any address but loopback: without them every client that reaches the port could send messages.
fn require_tokens_beyond_loopback(config: &Config) -> Result<()> {
    let listen = config.http.listen;
    if listen.ip().to_canonical().is_loopback() || !config.auth.tokens.is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "refusing to listen on {listen} without authentication; add tokens under [auth] or listen on 127.0.0.1"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_needs_no_tokens() {
        let listening = |address: &str| {
            let mut config = Config::default();
            config.http.listen = address.parse().unwrap();
            require_tokens_beyond_loopback(&config)
        };
        for loopback in ["127.0.0.1:7700", "127.8.8.8:1", "[::1]:7700", "[::ffff:127.0.0.1]:7700"] {
            assert!(listening(loopback).is_ok(), "{loopback} was refused");
        }
        for open in ["0.0.0.0:7700", "[::]:7700", "192.168.1.5:7700"] {
            assert!(listening(open).is_err(), "{open} was accepted");
        }
    }

    #[test]
    fn unknown_role_is_refused_by_name() {
        let none = Roles { relay: false, push: false, check_back: false, console: false };
        assert_eq!(roles(&["relay".into()]).unwrap(), Roles { relay: true, ..none });
        assert_eq!(roles(&["push".into(), " relay".into()]).unwrap(), Roles { relay: true, push: true, ..none });
        assert_eq!(roles(&["check-back".into()]).unwrap(), Roles { check_back: true, ..none });
        assert_eq!(roles(&["console".into()]).unwrap(), Roles { console: true, ..none });
        let refusal = roles(&["relay".into(), "boss".into()]).unwrap_err().to_string();
        assert!(refusal.starts_with("unknown role \"boss\""));
    }
}
