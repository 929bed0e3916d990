//! Selectors as a shape and constants. Selectors of one shape share the compiled matcher.

use std::sync::Arc;

use crate::condition::Condition;
use crate::constant::Constant;
use crate::normal;
use crate::path::Scope;
use crate::tape::Document;

/// A condition without its constants, with the text that identifies it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub text: Box<str>,
    pub condition: Condition,
}

/// Which records a query selects, in normal form.
#[derive(Clone, Debug)]
pub struct Selector {
    pub(crate) shape: Arc<Shape>,
    pub(crate) constants: Box<[Constant]>,
}

impl Selector {
    pub(crate) fn new(condition: Condition, constants: &[Constant]) -> Self {
        let mut condition = normal::simplify(condition, constants);
        let constants = normal::number(&mut condition, constants);
        let mut text = String::new();
        condition.write(None, &mut text);
        Self {
            shape: Arc::new(Shape {
                text: text.into(),
                condition,
            }),
            constants,
        }
    }

    /// Whether the record is selected.
    #[must_use]
    #[inline]
    pub fn matches(&self, document: &Document<'_>) -> bool {
        self.shape
            .condition
            .holds(&Scope::Document(*document), &self.constants)
    }

    /// Appends the normal form. It identifies the selector; it is not the syntax of a selector.
    pub(crate) fn write(&self, out: &mut String) {
        self.shape.condition.write(Some(&self.constants), out);
    }

    /// The normal form without constants.
    #[must_use]
    pub fn shape(&self) -> &str {
        &self.shape.text
    }

    /// Bytes of the constants, which no other selector shares.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        std::mem::size_of_val(&*self.constants)
            + self
                .constants
                .iter()
                .map(Constant::heap_bytes)
                .sum::<usize>()
    }
}
