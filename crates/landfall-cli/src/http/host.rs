//! Requires that a request names its host once, as RFC 9112 does. A proxy could otherwise read another name than the
//! daemon, and allow what the daemon would refuse.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, Version, header};
use axum::middleware::Next;
use axum::response::Response;

use super::problem::Problem;

pub(super) async fn check(request: Request, next: Next) -> Result<Response, Problem> {
    if !is_unambiguous(request.uri(), request.headers(), request.version()) {
        return Err(Problem::invalid("the request must have exactly one valid Host, the same as in its target"));
    }
    Ok(next.run(request).await)
}

/// Returns whether there is one host. Only HTTP/1.0 may omit the header.
fn is_unambiguous(target: &Uri, headers: &HeaderMap, version: Version) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => return version < Version::HTTP_11,
        (Some(host), None) => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
        (Some(_), Some(_)) => None,
    };
    host.is_some_and(|host| !host.as_str().contains('@') && target.authority().is_none_or(|target| *target == host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_one_host() {
        let check = |target: &str, hosts: &[&str], version| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().unwrap());
            }
            is_unambiguous(&target.parse().unwrap(), &headers, version)
        };
        let http11 = |target, hosts| check(target, hosts, Version::HTTP_11);
        assert!(http11("/", &["localhost:7700"]) && http11("/", &["[::1]:7700"]));
        assert!(http11("http://localhost/metrics", &["LocalHost"]));
        assert!(check("/", &[], Version::HTTP_10));
        for hosts in [&[][..], &[""], &["a", "b"], &["a", "a"], &["a b"], &["user@localhost"], &["a/b"]] {
            assert!(!http11("/", hosts), "{hosts:?} was accepted");
        }
        assert!(!http11("http://evil.example/metrics", &["localhost"]));
    }
}
