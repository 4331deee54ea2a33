//! `http://127.0.0.1:8000/metrics`.

/// The host with its port, and the path, of a URL.
pub(crate) fn parts(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let (host, path) = rest.map_or(("", ""), |rest| rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())));
    (host.rsplit('@').next().unwrap_or(""), path)
}

/// What is wrong with a URL of a server, if anything is.
pub(crate) fn no_address(url: &str) -> Option<&'static str> {
    let (host, _) = parts(url);
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Some("a port is a number from 1 to 65535");
    }
    let none = host.is_empty() || host.starts_with(':') || url.contains(char::is_whitespace);
    none.then_some("expected `http://…`, `https://…` or `simulator`")
}
