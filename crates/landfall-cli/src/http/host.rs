//! Requires that a request names its host once, as RFC 9112 does. A proxy could otherwise read another name than the
//! daemon, and allow what the daemon would refuse.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri, Version, header};
use axum::middleware::Next;
use axum::response::Response;

use super::problem::Problem;

pub(crate) async fn check(mut request: Request, next: Next) -> Result<Response, Problem> {
    if !is_unambiguous(request.uri(), request.headers(), request.version()) {
        return Err(Problem::invalid("the request must have exactly one valid Host, the same as in its target"));
    }
    name_host(&mut request);
    Ok(next.run(request).await)
}

/// HTTP/2 names the host as `:authority`. Later checks read the header, so it is added.
fn name_host(request: &mut Request) {
    if request.version() != Version::HTTP_2 || request.headers().contains_key(header::HOST) {
        return;
    }
    let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// Returns whether there is one host. Only HTTP/1.0 may omit the header, and HTTP/2 with `:authority`.
fn is_unambiguous(target: &Uri, headers: &HeaderMap, version: Version) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_2 => {
            return target.authority().is_some_and(|host| !host.as_str().contains('@'));
        }
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
        let http2 = |target, hosts| check(target, hosts, Version::HTTP_2);
        assert!(http2("http://localhost/", &[]) && http2("http://localhost/", &["localhost"]));
        assert!(http2("/", &["localhost"]));
        for (target, hosts) in
            [("/", &[][..]), ("http://user@localhost/", &[]), ("http://evil.example/", &["localhost"])]
        {
            assert!(!http2(target, hosts), "{target} with {hosts:?} was accepted");
        }
    }
}
