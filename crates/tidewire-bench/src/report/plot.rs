//! Bars as inline SVG. The page's style has the colours; each bar is labelled, so its colour is not the only
//! distinction.

use super::figures::short;
use super::html::escape;
use crate::run_results::Role;

/// Width of the picture; it scales with its container.
const WIDTH: f64 = 480.0;
/// The start of bars; contenders' names are before it.
const LEFT: f64 = 130.0;
/// Space after the longest bar for its figure.
const RIGHT: f64 = 90.0;
/// Height of a bar with its distance to the next.
const ROW: f64 = 22.0;

/// A bar.
#[derive(Debug)]
pub struct Bar<'a> {
    /// Its contender.
    pub title: &'a str,
    /// Its colour.
    pub role: Role,
    /// Its length.
    pub value: f64,
    /// Whether it is only known to be longer.
    pub is_bound: bool,
}

/// Bars on a logarithmic scale that begins below the smallest of them. Empty without a bar.
#[must_use]
pub fn bars(label: &str, unit: &str, bars: &[Bar<'_>]) -> String {
    let logs = || bars.iter().map(|bar| bar.value.max(1e-9).log10());
    let (Some(low), Some(high)) = (logs().reduce(f64::min), logs().reduce(f64::max)) else {
        return String::new();
    };
    // Half a decade below the smallest, so that its bar is visible too.
    let low = low - 0.5;
    let height = ROW * bars.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(label)
    );
    for (row, bar) in bars.iter().enumerate() {
        let share = (bar.value.max(1e-9).log10() - low) / (high - low);
        let length = share * (WIDTH - LEFT - RIGHT);
        let top = row as f64 * ROW;
        let class = match bar.role {
            Role::Tidewire | Role::Variant => "tidewire",
            Role::Null => "null",
            Role::Rival => "rival",
        };
        let bound = if bar.is_bound { "&gt; " } else { "" };
        svg += &format!(
            "<text x=\"{}\" y=\"{}\" class=\"name\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"16\" rx=\"2\" class=\"{class}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{bound}{} {}</text>\n",
            LEFT - 6.0,
            top + 15.0,
            escape(bar.title),
            top + 3.0,
            LEFT + length + 5.0,
            top + 15.0,
            short(bar.value),
            escape(unit),
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_values_have_longer_bars() {
        let bar = |value, is_bound| Bar {
            title: "a <b>",
            role: Role::Rival,
            value,
            is_bound,
        };
        let svg = bars(
            "rounds",
            "ms",
            &[bar(1.0, false), bar(1000.0, true), bar(0.0, false)],
        );
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(widths[2] < widths[0] && widths[0] < widths[1], "{widths:?}");
        assert!(widths[1] <= WIDTH - LEFT - RIGHT, "{widths:?}");
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("&gt; 1000 ms"));
        assert_eq!(bars("none", "ms", &[]), "");
    }
}
