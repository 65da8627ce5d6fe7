//! Which addresses a subscription may post to.
//!
//! Protects against server-side request forgery: without these rules a subscription could reach a cloud's metadata
//! service or a database inside the daemon's network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Uri;

/// The address rules of `[push]` or `[check_back]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The section of the configuration, for errors.
    pub(crate) section: &'static str,
    pub(crate) allow_private_addresses: bool,
    /// Host names, in lower case, that may resolve to any address.
    pub(crate) allowed_hosts: Vec<String>,
}

/// Returns the host of a URL in lower case, and an IPv6 address without its brackets.
pub(super) fn host(url: &Uri) -> String {
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned).unwrap_or(host)
}

impl Default for Rules {
    fn default() -> Self {
        Self { section: "push", allow_private_addresses: false, allowed_hosts: Vec::new() }
    }
}

impl Rules {
    /// Returns whether a connection to `host` at `address` is allowed.
    pub(super) fn allow(&self, host: &str, address: IpAddr) -> bool {
        self.allow_private_addresses || self.allowed_hosts.iter().any(|allowed| allowed == host) || is_public(address)
    }

    pub(super) fn refusal(&self, host: &str, address: IpAddr) -> String {
        let target = if host == address.to_string() { host.to_owned() } else { format!("{host} ({address})") };
        let section = self.section;
        format!(
            "{target} is not a public address; to allow it, add it to {section}.allowed_hosts or set \
             {section}.allow_private_addresses"
        )
    }

    /// Refuses a URL whose host is a forbidden address. A host name is checked when it is resolved.
    pub(crate) fn check_literal(&self, url: &Uri) -> Result<(), String> {
        let host = host(url);
        match host.parse::<IpAddr>() {
            Ok(address) if !self.allow(&host, address) => Err(self.refusal(&host, address)),
            Err(_) if is_unusual_address(&host) && !self.allow(&host, Ipv4Addr::UNSPECIFIED.into()) => {
                Err(format!("{host} is not a public address in its usual form; write it as 192.0.2.1 or [2001:db8::1]"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a host that is no address in its usual form may still be one to a resolver: `127.1`, `0x7f000001`,
/// `2130706433`, `127.0.0.1.`, `::1%lo`. No domain name ends in a number.
fn is_unusual_address(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = |digits: &str, radix| digits.chars().all(|digit| digit.is_digit(radix));
    host.contains([':', '%']) || is_number(last, 10) || last.strip_prefix("0x").is_some_and(|hex| is_number(hex, 16))
}

/// Returns whether the address is publicly routable; unassigned ranges are not.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(address) => is_public_v4(address),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match (a, b, c) {
        // This network, private, loopback, link-local (cloud metadata services), private.
        (0 | 10 | 127, ..) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
        // Carrier-grade NAT (one cloud's metadata service), protocol assignments, documentation, 6to4 relays.
        (100, 64..=127, _) | (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) => true,
        // Benchmarks; multicast, reserved and broadcast.
        (198, 18 | 19, _) | (224.., ..) => true,
        _ => false,
    };
    !reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Global unicast addresses begin with 2 or 3; the rest is loopback, local, multicast or unassigned.
    let global = segments[0] & 0xe000 == 0x2000;
    let documentation = (segments[0] == 0x2001 && segments[1] == 0x0db8) || segments[0] & 0xfff0 == 0x3ff0;
    // Teredo, benchmarks, ORCHID and the like.
    let protocols = segments[0] == 0x2001 && segments[1] < 0x0200;
    global && !documentation && !protocols
}

/// Returns the IPv4 address that an IPv6 address stands for: mapped, compatible, translated (NAT64) or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let from = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // The unspecified address and loopback embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(from(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(from(high, low)),
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: [&str; 41] = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.8.8.8",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.1.2.3",
        "::ffff:0:10.1.2.3",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:db8::1",
        "2001::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "ff02::1",
    ];

    const PUBLIC: [&str; 12] = [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.1.1",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ];

    #[test]
    fn only_public_addresses_are_allowed() {
        for text in PRIVATE {
            assert!(!Rules::default().allow("host.example", text.parse().unwrap()), "{text} was allowed");
        }
        for text in PUBLIC {
            assert!(Rules::default().allow("host.example", text.parse().unwrap()), "{text} was refused");
        }
    }

    #[test]
    fn allowed_host_may_be_private_and_no_other() {
        let rules = Rules { allowed_hosts: vec!["mailer.internal".into(), "10.0.0.7".into()], ..Rules::default() };
        let private = "10.0.0.7".parse().unwrap();
        assert!(rules.allow("mailer.internal", private) && rules.allow("10.0.0.7", private));
        assert!(!rules.allow("evil.example", private) && !rules.allow("x.mailer.internal", private));
        let all = Rules { allow_private_addresses: true, ..Rules::default() };
        assert!(all.allow("evil.example", private));
    }

    #[test]
    fn private_address_literal_in_url_is_refused() {
        let refused = |url: &str| Rules::default().check_literal(&url.parse().unwrap()).is_err();
        for url in
            ["http://127.0.0.1/", "http://169.254.169.254/latest", "https://[::1]:8443/x", "http://[::ffff:7f00:1]/"]
        {
            assert!(refused(url), "{url} was allowed");
        }
        for url in ["https://8.8.8.8/", "https://[2606:4700:4700::1111]/", "https://example.com/", "https://0x.org./"] {
            assert!(!refused(url), "{url} was refused");
        }
    }

    #[test]
    fn unusual_address_is_refused_unless_allowed() {
        let open = Rules { allow_private_addresses: true, ..Rules::default() };
        for host in [
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0X7F000001",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "127.1",
            "127.0.1",
            "127.0.0.1.",
            "1.2.3.4.5",
            "256.0.0.1",
            "0",
            "evil.example.0x7f",
        ] {
            let url = format!("http://{host}/").parse().unwrap();
            assert!(Rules::default().check_literal(&url).is_err(), "{host} was allowed");
            assert!(open.check_literal(&url).is_ok(), "{host} was refused");
        }
    }
}
