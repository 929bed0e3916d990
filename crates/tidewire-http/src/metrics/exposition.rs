//! The two formats of `/metrics`, and their selection: OpenMetrics 1.0 if the `Accept` header prefers it, else Prometheus' text
//! format 0.0.4, which every scraper and `promtool` can read.

use std::fmt::Write as _;

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The format that the headers of a request prefer (RFC 9110, section 12.5.1). OpenMetrics must be named explicitly:
    /// programs send `*/*` if their author has configured nothing.
    #[must_use]
    pub fn wanted(headers: &HeaderMap) -> Self {
        let (mut text, mut open_metrics) = (0, 0);
        let ranges = headers.get_all(ACCEPT).iter();
        let ranges = ranges.filter_map(|value| value.to_str().ok());
        for range in ranges.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters = parts.filter_map(|part| part.split_once('='));
            let (mut weight, mut is_known) = (1_000, true);
            for (name, value) in parameters {
                let (name, value) = (name.trim(), value.trim().trim_matches('"'));
                if name.eq_ignore_ascii_case("q") {
                    weight = thousandths(value);
                } else if name.eq_ignore_ascii_case("version") && kind.ends_with("openmetrics-text")
                {
                    is_known = matches!(value, "1.0.0" | "0.0.1");
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if is_known => {
                    open_metrics = open_metrics.max(weight);
                }
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
        match open_metrics > text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// Its content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Parses a weight of `Accept`, in thousandths. An invalid weight counts as 0.
fn thousandths(weight: &str) -> u32 {
    let weight: f32 = weight.parse().unwrap_or(0.0);
    // At most 1,000, whatever the header contains.
    (weight.clamp(0.0, 1.0) * 1_000.0) as u32
}

/// Converts OpenMetrics to Prometheus' text format. The formats differ in the descriptors of counters, which have the suffix
/// only in the older format, and in the lines `UNIT` and `EOF`, which exist only in OpenMetrics.
#[must_use]
pub fn text_of(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    let kind_of = |line: &str| -> Option<(String, String)> {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        // The help line comes before the type line, but its name depends on the type.
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            let kind = lines.peek().and_then(|next| kind_of(next));
            let is_counter = kind.is_some_and(|(_, kind)| kind == "counter");
            let suffix = if is_counter { "_total" } else { "" };
            let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            continue;
        }
        match kind_of(line) {
            Some((name, kind)) if kind == "counter" => {
                let _ = writeln!(text, "# TYPE {name}_total counter");
            }
            Some((name, kind)) if kind == "unknown" => {
                let _ = writeln!(text, "# TYPE {name} untyped");
            }
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_name_it_and_prefer_it() {
        let check = |accept: &[&str], expected| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_str(value).expect("a header"));
            }
            assert_eq!(Exposition::wanted(&headers), expected, "{accept:?}");
        };
        // The header of Prometheus 2.42 from Debian.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        check(&[prometheus], Exposition::OpenMetrics);
        check(&["application/openmetrics-text"], Exposition::OpenMetrics);
        check(
            &["text/plain;q=0.5", "application/openmetrics-text; q=0.6"],
            Exposition::OpenMetrics,
        );
        for accept in [
            &[][..],
            &["*/*"],
            &["text/plain"],
            &["text/plain, application/openmetrics-text;q=0.5"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;version=2.0.0"],
            &["application/openmetrics-text;q=often"],
            &["text/html,*/*;q=0.8"],
        ] {
            check(accept, Exposition::Text);
        }
    }

    #[test]
    fn only_descriptors_differ() {
        let open_metrics = "# HELP a_b Sends.\n# TYPE a_b counter\na_b_total 5\n\
            # HELP a_seconds Time.\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 0.5\n\
            # HELP a_c By cause.\n# TYPE a_c counter\na_c_total{cause=\"x y\"} 1\n# EOF\n";
        let text = "# HELP a_b_total Sends.\n# TYPE a_b_total counter\na_b_total 5\n\
            # HELP a_seconds Time.\n# TYPE a_seconds gauge\na_seconds 0.5\n\
            # HELP a_c_total By cause.\n# TYPE a_c_total counter\na_c_total{cause=\"x y\"} 1\n";
        assert_eq!(text_of(open_metrics), text);
    }
}
