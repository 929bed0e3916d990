//! Writes configurations: the documented defaults, the values in effect with their origins, and the reference page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::layer::{Loaded, walk};
use super::option::{OptionRow, Value, Visitor};
use super::section::Config;

/// Text that is written instead of a secret.
const MASK: &str = "\"********\"";
/// The value of a secret that is not set.
const NOTHING: &str = "\"\"";

/// The defaults as `tidewire.yml` with the documentation of each option as comments.
#[must_use]
pub fn defaults() -> String {
    let mut printer = Yaml {
        text: "# All options of Tidewire with their defaults, written by `tidewire config print`.\n\
            # Each is also an environment variable (store.path is TIDEWIRE_STORE__PATH) and a flag (log.level is\n\
            # --log-level); flags override the environment, the environment overrides this file. `${NAME}` is replaced by an\n\
            # environment variable, which must be set.\n\n"
            .to_owned(),
        loaded: None,
    };
    walk(&mut Config::default(), &mut printer);
    printer.text
}

/// The values in effect, each with its origin. Secrets are masked.
#[must_use]
pub fn effective(loaded: &Loaded) -> String {
    let mut printer = Yaml {
        text: String::new(),
        loaded: Some(loaded),
    };
    walk(&mut loaded.config.clone(), &mut printer);
    printer.text
}

/// The options with different values that only a restart can change.
#[must_use]
pub fn changed_without_reload(before: &Loaded, after: &Loaded) -> Vec<String> {
    let mut old = Values::default();
    let mut new = Values::default();
    walk(&mut before.config.clone(), &mut old);
    walk(&mut after.config.clone(), &mut new);
    // Two configurations with the same additional stores have the same names.
    let value = |values: &Values, name: &str| {
        let mut values = values.0.iter();
        let found = values.find(|(other, ..)| other == name);
        found.map(|(_, value, _)| value.clone())
    };
    let names: BTreeSet<&str> = [&old, &new]
        .into_iter()
        .flat_map(|values| &values.0)
        .filter(|(_, _, is_reloaded)| !is_reloaded)
        .map(|(name, ..)| name.as_str())
        .collect();
    let changed = names
        .into_iter()
        .filter(|name| value(&old, name) != value(&new, name));
    changed.map(str::to_owned).collect()
}

/// All options: name, value, and whether it can be reloaded.
#[derive(Default)]
struct Values(Vec<(String, String, bool)>);

impl Visitor for Values {
    fn section(&mut self, _name: &str, _doc: &'static [&'static str]) {}

    fn option(&mut self, row: OptionRow, value: &mut dyn Value) {
        self.0.push((row.name, value.show(), row.traits.reload));
    }
}

/// Writes nested sections: with documentation, or with the origins of the loaded values.
struct Yaml<'a> {
    text: String,
    loaded: Option<&'a Loaded>,
}

impl Yaml<'_> {
    fn document(&mut self, indent: &str, doc: &[&str]) {
        for line in doc {
            let _ = writeln!(self.text, "{indent}#{line}");
        }
    }
}

/// The white space before the key of a dotted name.
fn indent(name: &str) -> String {
    "  ".repeat(name.matches('.').count())
}

impl Visitor for Yaml<'_> {
    fn section(&mut self, name: &str, doc: &'static [&'static str]) {
        let Some(key) = name.rsplit('.').next().filter(|key| !key.is_empty()) else {
            return;
        };
        let indent = indent(name);
        let _ = writeln!(self.text);
        if self.loaded.is_none() {
            self.document(&indent, doc);
        }
        let _ = writeln!(self.text, "{indent}{key}:");
    }

    fn option(&mut self, row: OptionRow, value: &mut dyn Value) {
        let indent = indent(&row.name);
        let is_given = value.show() != NOTHING;
        let shown = if row.traits.secret && is_given {
            MASK.to_owned()
        } else {
            // If the server reads this text again, it must not expand a variable in a value.
            value.show().replace("${", "$${")
        };
        let line = format!("{indent}{}: {shown}", row.key());
        match self.loaded {
            None => {
                self.document(&indent, row.doc);
                let _ = writeln!(self.text, "{line}");
            }
            Some(loaded) => {
                let _ = writeln!(self.text, "{line:<44} # {}", loaded.origin(&row.name));
            }
        }
    }
}

/// The reference page of all options.
#[must_use]
pub fn reference() -> String {
    let mut page = Reference {
        text: "# Configuration\n\n\
            <!-- Written from the table of options in crates/tidewire-config/src/section.rs; do not edit. -->\n\n\
            Every option has one name. In `tidewire.yml` it is nested (`store:`, then `path:` below it), in the environment\n\
            it is `TIDEWIRE_STORE__PATH`, on the command line the flag that is listed below. Flags override the environment,\n\
            the environment overrides the file, and the file overrides the defaults. `tidewire config check` reports every\n\
            mistake, `tidewire config print` prints the defaults, and with `--effective` the values in effect with the source\n\
            of each.\n\n\
            `--config` or `TIDEWIRE_CONFIG` names the file; without them it is `tidewire.yml` in the working folder, if that\n\
            exists. In its values `${NAME}` is replaced by an environment variable, which must be set; `$${` is `${` itself.\n\
            Sizes are bytes or have a unit (`64KiB`, `1MB`); times always have a unit (`500ms`, `30s`, `2m`). Lists in the\n\
            environment and in flags are separated by commas. SIGHUP applies the options marked *reload*, a restart all others.\n"
            .to_owned(),
    };
    walk(&mut Config::default(), &mut page);
    page.text
}

struct Reference {
    text: String,
}

impl Visitor for Reference {
    fn section(&mut self, name: &str, doc: &'static [&'static str]) {
        let title = if name.is_empty() { "General" } else { name };
        let text = doc.concat();
        let _ = write!(self.text, "\n## {title}\n\n{}\n", text.trim());
    }

    fn option(&mut self, row: OptionRow, value: &mut dyn Value) {
        let reload = if row.traits.reload {
            " · *reload*"
        } else {
            ""
        };
        let _ = write!(
            self.text,
            "\n### `{}`\n\n{}\n\n{} · default `{}` · `{}` · `--{}`{reload}\n",
            row.name,
            row.doc.concat().trim(),
            value.kind(),
            value.show(),
            row.variable(),
            row.flag(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer::{Origin, Sources, load};
    use super::super::option::{Field, Traits, section};
    use super::*;

    section! {
        /// A section with a secret.
        Hidden {
            /// The secret.
            token: String = "hunter2".to_owned(), Traits::NONE.secret();
            /// Not a secret.
            name: String = "tide".to_owned();
        }
    }

    #[test]
    fn secrets_are_masked() {
        let mut printer = Yaml {
            text: String::new(),
            loaded: Some(&Loaded::default()),
        };
        let row = OptionRow {
            name: String::new(),
            doc: &[],
            traits: Traits::NONE,
        };
        Hidden::default().visit(row, &mut printer);
        let lines: Vec<String> = printer.text.lines().map(without_padding).collect();
        let expected = ["token: \"********\" # default", "name: tide # default"];
        assert_eq!(lines, expected);
    }

    fn without_padding(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn text_that_resembles_a_variable_is_read_back_unchanged() {
        use super::super::layer::load_text;
        let load = |text: &str| load_text(text, std::path::Path::new("f.yml"), &[].into());
        let loaded = load("store: {path: \"$${HOME}/$$${x\"}\n").expect("valid");
        let again = load(&effective(&loaded)).expect("what is written can be read");
        assert_eq!(again.config.store.path, loaded.config.store.path);
    }

    #[test]
    fn options_that_need_a_restart_are_named() {
        let before = Loaded::default();
        let mut after = Loaded::default();
        after.config.log.level = crate::section::LogLevel::Debug;
        assert_eq!(changed_without_reload(&before, &after), [""; 0]);
        after.config.network.port = 7000;
        assert_eq!(changed_without_reload(&before, &after), ["network.port"]);
    }

    #[test]
    fn the_values_in_effect_name_their_origin() {
        let sources = Sources {
            flags: vec![("network.port".into(), "7000".into())],
            ..Sources::default()
        };
        let loaded = load(&sources).expect("the port is right");
        assert_eq!(loaded.origin("network.port"), &Origin::Flag("port".into()));
        let text = effective(&loaded);
        let lines: Vec<String> = text.lines().map(without_padding).collect();
        assert!(lines.contains(&"port: 7000 # --port".to_owned()), "{text}");
        assert!(
            lines.contains(&"head_timeout: 10s # default".to_owned()),
            "{text}"
        );
    }
}
