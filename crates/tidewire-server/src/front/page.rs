//! The page at `/` in development mode: what can be reached here.

use std::fmt::Write as _;

/// The page, for a server that is reached as `host`.
#[must_use]
pub fn index(host: &str, is_encrypted: bool, paths: &[String]) -> String {
    let host = escape(host);
    let scheme = if is_encrypted { "wss" } else { "ws" };
    let mut rows = String::new();
    for path in paths {
        let path = escape(path);
        let _ = writeln!(
            rows,
            "<li><code>{scheme}://{host}{path}</code> for deepstream clients</li>"
        );
    }
    for (path, text) in [
        ("/health", "whether the server works"),
        ("/ready", "whether it takes new connections, and why not"),
        ("/metrics", "numbers for Prometheus"),
    ] {
        let _ = writeln!(rows, "<li><a href=\"{path}\">{path}</a>: {text}</li>");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Tidewire</title>\n\
         <h1>Tidewire</h1>\n<p>The server runs in development mode: everybody on this machine may log in.</p>\n\
         <ul>\n{rows}</ul>\n</html>\n"
    )
}

/// `text` without characters that mean something in HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_sends_is_no_markup() {
        let page = index("<script>\"&", false, &["/deepstream".to_owned()]);
        assert!(
            page.contains("ws://&lt;script&gt;&quot;&amp;/deepstream"),
            "{page}"
        );
    }
}
