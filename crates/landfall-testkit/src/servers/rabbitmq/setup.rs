//! Prepares the folder of a node: settings, plugins and, in a cluster, the shared cookie.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use landfall_core::Result;

use super::TlsPorts;
use crate::servers::account::Account;
use crate::servers::certificates::Certificates;
use crate::servers::daemon;

/// The configuration of a node.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub(super) settings: Vec<(String, String)>,
    pub(super) plugins: Vec<&'static str>,
    /// The shared secret of a cluster's nodes; a single node generates its own.
    pub(super) cookie: Option<String>,
}

impl Setup {
    pub(super) fn write(&self, folder: &Path, account: Option<Account>, management: u16) -> Result<()> {
        let failed = |error| daemon::unavailable("cannot write the settings of RabbitMQ", error);
        let mut settings = format!(
            "management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management}\nlog.console.level = warning\n\
             collect_statistics_interval = 1000\n"
        );
        for (name, value) in &self.settings {
            settings.push_str(&format!("{name} = {value}\n"));
        }
        std::fs::write(folder.join("rabbitmq.conf"), settings).map_err(failed)?;
        let plugins = [&["rabbitmq_management"], &self.plugins[..]].concat().join(",");
        std::fs::write(folder.join("enabled_plugins"), format!("[{plugins}].\n")).map_err(failed)?;
        if let Some(cookie) = &self.cookie {
            let file = folder.join(".erlang.cookie");
            std::fs::write(&file, cookie).map_err(failed)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).map_err(failed)?;
            if let Some(Account { uid, gid }) = account {
                std::os::unix::fs::chown(&file, Some(uid), Some(gid)).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Returns settings for TLS ports with certificate login. If `strict`, TLS clients must present a certificate.
pub(super) fn tls(certificates: &Certificates, ports: &TlsPorts, strict: bool) -> Vec<(String, String)> {
    let (certificate, key) = certificates.server();
    let files = [("cacertfile", certificates.authority()), ("certfile", certificate), ("keyfile", key)];
    let mut settings: Vec<_> = ["ssl_options", "management.ssl"]
        .iter()
        .flat_map(|what| files.iter().map(move |(name, file)| (format!("{what}.{name}"), file.display().to_string())))
        .collect();
    let rest = [
        ("listeners.ssl.1", format!("127.0.0.1:{}", ports.amqp)),
        ("management.ssl.ip", "127.0.0.1".to_owned()),
        ("management.ssl.port", ports.management.to_string()),
        ("ssl_options.verify", "verify_peer".to_owned()),
        ("ssl_options.fail_if_no_peer_cert", strict.to_string()),
        ("auth_mechanisms.1", "PLAIN".to_owned()),
        ("auth_mechanisms.2", "EXTERNAL".to_owned()),
        ("ssl_cert_login_from", "common_name".to_owned()),
    ];
    settings.extend(rest.map(|(name, value)| (name.to_owned(), value)));
    settings
}
