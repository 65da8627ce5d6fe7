//! Finds the addresses of a service in the DNS (SRV records, RFC 2782).

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use landfall::check_back::{ServiceResolver, StaticServices};
use landfall::{Error, ErrorKind};

use crate::config::Srv;

/// The configured services, and for all others the DNS. Answers are cached for as long as they say.
pub(super) struct SrvServices {
    configured: StaticServices,
    name: String,
    scheme: &'static str,
    resolver: TokioResolver,
}

impl SrvServices {
    pub(super) fn new(configured: StaticServices, srv: &Srv) -> crate::error::Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            crate::error::Error::usage(format!("check_back.srv_servers: cannot ask the DNS: {error}"))
        };
        let resolver = if srv.servers.is_empty() {
            TokioResolver::builder_tokio().and_then(|builder| builder.build())
        } else {
            let servers = srv.servers.iter().map(|server| {
                let connection = |mut connection: ConnectionConfig| {
                    connection.port = server.port();
                    connection
                };
                let connections = vec![connection(ConnectionConfig::udp()), connection(ConnectionConfig::tcp())];
                NameServerConfig::new(server.ip(), true, connections)
            });
            let config = ResolverConfig::from_name_servers(servers.collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).build()
        };
        let resolver = resolver.map_err(|error| failed(&error))?;
        Ok(Self { configured, name: srv.name.clone(), scheme: srv.scheme, resolver })
    }

    async fn look_up(&self, service: &str) -> landfall::Result<Vec<String>> {
        // With the final dot no search domain is appended.
        let name = format!("{}.", self.name.replace("{service}", service));
        let found = self.resolver.srv_lookup(name.as_str()).await.map_err(|error| {
            let kind = if error.is_no_records_found() { ErrorKind::NotFound } else { ErrorKind::Unavailable };
            Error::new(kind, format!("the DNS has no addresses of {service:?} at {name}: {error}"))
        })?;
        let mut targets = Vec::new();
        for record in found.answers() {
            let RData::SRV(record) = &record.data else { continue };
            let host = record.target.to_ascii();
            let host = host.trim_end_matches('.');
            // The root as the target says that there is no such service.
            if !host.is_empty() {
                let url = format!("{}://{host}:{}", self.scheme, record.port);
                targets.push((record.priority, place(record.weight, rand::random()), url));
            }
        }
        if targets.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("the DNS has no address of {service:?} at {name}")));
        }
        targets.sort_by(|(priority, place, _), (other, elsewhere, _)| {
            priority.cmp(other).then(place.total_cmp(elsewhere))
        });
        Ok(targets.into_iter().map(|(_, _, url)| url).collect())
    }
}

/// Draws the place of a target among those of its priority, so that the first one is chosen in proportion to its
/// weight. `random` is from 0 to 1.
fn place(weight: u16, random: f64) -> f64 {
    -random.max(f64::MIN_POSITIVE).ln() / f64::from(weight).max(0.001)
}

#[async_trait]
impl ServiceResolver for SrvServices {
    async fn resolve(&self, service: &str) -> landfall::Result<Vec<String>> {
        match self.configured.resolve(service).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            configured => return configured,
        }
        // Senders choose the name, so it must stay one part of the configured one.
        let is_label = (1..=63).contains(&service.len())
            && service.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'));
        if !is_label {
            let text = format!("{service:?} is no name of a service: use at most 63 letters, digits, - and _");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        self.look_up(service).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavier_targets_come_first_more_often() {
        let heavier_first = (0..10_000).filter(|_| place(90, rand::random()) < place(10, rand::random())).count();
        assert!((8_500..9_500).contains(&heavier_first), "{heavier_first} of 10000");
        assert!(place(1, 0.0).is_finite() && place(0, 0.5) > place(1, 0.5));
    }
}
