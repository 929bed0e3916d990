//! The page at `/` in development mode, unless the demo is there: it lists the addresses of this server.

use std::fmt::Write as _;

use tidewire_wire::protocol::Protocol;

/// The HTML of the page, for a server that the browser reached as `host`.
#[must_use]
pub fn index(host: &str, is_encrypted: bool, paths: &[(String, Protocol)]) -> String {
    let host = escape(host);
    let scheme = if is_encrypted { "wss" } else { "ws" };
    let mut rows = String::new();
    for (path, protocol) in paths {
        let clients = protocol.clients();
        let path = escape(path);
        let _ = writeln!(
            rows,
            "<li><code>{scheme}://{host}{path}</code> for {clients}</li>"
        );
    }
    for (path, text) in [
        ("/health", "whether the server works"),
        (
            "/ready",
            "whether it accepts new connections, and the reason if not",
        ),
        ("/metrics", "metrics for Prometheus"),
    ] {
        let _ = writeln!(rows, "<li><a href=\"{path}\">{path}</a>: {text}</li>");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Tidewire</title>\n\
         <h1>Tidewire</h1>\n<p>The server runs in development mode: every user of this machine may log in.</p>\n\
         <ul>\n{rows}</ul>\n</html>\n"
    )
}

/// Escapes the characters of `text` that have a meaning in HTML.
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
    fn text_of_the_peer_is_not_markup() {
        let paths = ["/plain", "/<marked>"].map(|path| (path.to_owned(), Protocol::ALL[0]));
        let page = index("<script>\"&", false, &paths);
        for path in ["/plain", "/&lt;marked&gt;"] {
            let expected = format!("ws://&lt;script&gt;&quot;&amp;{path}<");
            assert!(page.contains(&expected), "{page}");
        }
    }
}
