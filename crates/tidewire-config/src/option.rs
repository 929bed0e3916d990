//! An option: a documented field of a section that can be set from text and written as text.
//!
//! The `section!` macro turns one list of documented fields into a struct, its defaults, and a walk over its options.
//! File, environment, flags, `config print` and the reference page all use that walk, so an option is added in one place.

use std::collections::BTreeMap;

use super::document::Located;

/// Properties of an option in addition to its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// A flag that replaces the derived one, without dashes.
    pub flag: Option<&'static str>,
    /// `config print --effective` masks the value.
    pub secret: bool,
    /// Applied by SIGHUP without a restart.
    pub reload: bool,
    /// Several fields have this type of section, so each field has its own documentation for it.
    pub described: bool,
}

impl Traits {
    /// An ordinary option.
    pub const NONE: Self = Self {
        flag: None,
        secret: false,
        reload: false,
        described: false,
    };

    /// The option's flag is `flag` instead of its name with hyphens.
    #[must_use]
    pub const fn flag(self, flag: &'static str) -> Self {
        Self {
            flag: Some(flag),
            ..self
        }
    }

    /// The option's value is masked.
    #[must_use]
    pub const fn secret(self) -> Self {
        Self {
            secret: true,
            ..self
        }
    }

    /// The field documents the section.
    #[must_use]
    pub const fn described(self) -> Self {
        Self {
            described: true,
            ..self
        }
    }

    /// SIGHUP applies the option while the server runs.
    #[must_use]
    pub const fn reload(self) -> Self {
        Self {
            reload: true,
            ..self
        }
    }
}

/// One row of the table of options.
#[derive(Clone, Debug)]
pub struct OptionRow {
    /// The dotted name, `store.path`.
    pub name: String,
    /// Its documentation, one entry per line.
    pub doc: &'static [&'static str],
    /// Its properties.
    pub traits: Traits,
}

impl OptionRow {
    /// The environment variable: `store.path` is `TIDEWIRE_STORE__PATH`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!(
            "{VARIABLE_PREFIX}{}",
            self.name.replace('.', "__").to_ascii_uppercase()
        )
    }

    /// The flag without its dashes: `log.level` is `log-level`.
    #[must_use]
    pub fn flag(&self) -> String {
        match self.traits.flag {
            Some(flag) => flag.to_owned(),
            None => self.name.replace(['.', '_'], "-"),
        }
    }

    /// The name within its section.
    #[must_use]
    pub fn key(&self) -> &str {
        self.name
            .rsplit_once('.')
            .map_or(self.name.as_str(), |(_, key)| key)
    }
}

/// Prefix of the environment variables of options.
pub const VARIABLE_PREFIX: &str = "TIDEWIRE_";

/// The text of an option's value, from any source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// One value. Lists of the environment and of flags have this form too, separated by commas.
    Scalar(String),
    /// A list in the file, each entry with its place.
    List(Vec<Located<String>>),
}

/// Error of a text that is not a valid value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// Description of the problem, with the text.
    pub reason: String,
    /// Index of the wrong entry, if the value is a list.
    pub index: Option<usize>,
}

impl From<String> for WrongValue {
    fn from(reason: String) -> Self {
        Self {
            reason,
            index: None,
        }
    }
}

/// The value of an option.
pub trait Value {
    /// Sets the value from `input`.
    ///
    /// # Errors
    /// The input is not a valid value. The value does not change.
    fn set(&mut self, input: &Input) -> Result<(), WrongValue>;
    /// The value as YAML. Setting it from this text changes nothing.
    fn show(&self) -> String;
    /// Description of the allowed texts, for people: "a size", "`text` or `json`".
    fn kind(&self) -> String;
}

/// Visits every section and option of a configuration, in the order of the file.
pub trait Visitor {
    /// A section begins; its options follow.
    fn section(&mut self, name: &str, doc: &'static [&'static str]);
    /// An option.
    fn option(&mut self, row: OptionRow, value: &mut dyn Value);
}

/// A field of a section: a value, or a section within it.
pub trait Field {
    /// Shows itself and its content to the visitor, under the name in `row`.
    fn visit(&mut self, row: OptionRow, visitor: &mut dyn Visitor);
}

impl<T: Value> Field for T {
    fn visit(&mut self, row: OptionRow, visitor: &mut dyn Visitor) {
        visitor.option(row, self);
    }
}

/// Shows a section whose members the file names, such as the stores.
pub(super) fn visit_members<T: Field>(
    row: &OptionRow,
    visitor: &mut dyn Visitor,
    members: &mut BTreeMap<String, T>,
) {
    visitor.section(&row.name, row.doc);
    for (name, member) in members {
        let row = OptionRow {
            name: join(&row.name, name),
            doc: &[],
            traits: row.traits,
        };
        member.visit(row, visitor);
    }
}

/// The name of `key` within the section `parent`; the root has an empty name.
#[must_use]
pub fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    }
}

/// Defines a section: `/// doc` `Name { /// doc` `field: Type = default, Traits::...; }`.
macro_rules! section {
    ($(#[doc = $section_doc:literal])* $section:ident {
        $( $(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr $(, $traits:expr)?; )*
    }) => {
        $(#[doc = $section_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section {
            $( $(#[doc = $doc])* pub $field: $type, )*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $crate::option::Field for $section {
            fn visit(
                &mut self,
                row: $crate::option::OptionRow,
                visitor: &mut dyn $crate::option::Visitor,
            ) {
                let doc: &'static [&'static str] = match row.traits.described {
                    true => row.doc,
                    false => &[$($section_doc),*],
                };
                visitor.section(&row.name, doc);
                $(
                    #[allow(unused_mut, unused_assignments)]
                    let mut traits = $crate::option::Traits::NONE;
                    $( traits = $traits; )?
                    $crate::option::Field::visit(
                        &mut self.$field,
                        $crate::option::OptionRow {
                            name: $crate::option::join(&row.name, stringify!($field)),
                            doc: &[$($doc),*],
                            traits,
                        },
                        visitor,
                    );
                )*
            }
        }
    };
}
pub(crate) use section;
