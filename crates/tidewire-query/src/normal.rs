//! The normal form of a condition: equal queries have the same one, and queries that differ in constants only have the same shape.

use crate::condition::{Condition, Slot};
use crate::constant::Constant;

/// Flattens, sorts and removes repetitions, from the innermost condition outwards.
pub(crate) fn simplify(condition: Condition, constants: &[Constant]) -> Condition {
    match condition {
        Condition::All(parts) => combine(parts, true, constants),
        Condition::Any(parts) => combine(parts, false, constants),
        Condition::Not(part) => match simplify(*part, constants) {
            Condition::Not(twice) => *twice,
            part if part.is_always() => Condition::never(),
            part if part.is_never() => Condition::always(),
            part => Condition::Not(Box::new(part)),
        },
        Condition::Field(
            path,
            crate::condition::Test::Element {
                is_selector,
                condition,
            },
        ) => {
            let condition = Box::new(simplify(*condition, constants));
            Condition::Field(
                path,
                crate::condition::Test::Element {
                    is_selector,
                    condition,
                },
            )
        }
        field @ Condition::Field(..) => field,
    }
}

/// One level of `all` or `any`.
fn combine(parts: Box<[Condition]>, is_all: bool, constants: &[Constant]) -> Condition {
    let mut flat = Vec::with_capacity(parts.len());
    for part in parts {
        match (simplify(part, constants), is_all) {
            (Condition::All(inner), true) | (Condition::Any(inner), false) => flat.extend(inner),
            // One part that never holds decides `all`, and one that always holds decides `any`.
            (part, true) if part.is_never() => return part,
            (part, false) if part.is_always() => return part,
            (part, _) => flat.push(part),
        }
    }
    let mut keyed: Vec<((String, String), Condition)> = flat
        .into_iter()
        .map(|part| (texts(&part, constants), part))
        .collect();
    // By shape first: then selectors of one shape have their constants in the same order.
    keyed.sort_by(|left, right| left.0.cmp(&right.0));
    keyed.dedup_by(|left, right| left.0 == right.0);
    let mut parts: Vec<Condition> = keyed.into_iter().map(|(_, part)| part).collect();
    match (parts.len(), is_all) {
        (1, _) => parts.remove(0),
        (_, true) => Condition::All(parts.into()),
        (_, false) => Condition::Any(parts.into()),
    }
}

fn texts(condition: &Condition, constants: &[Constant]) -> (String, String) {
    let (mut shape, mut full) = (String::new(), String::new());
    condition.write(None, &mut shape);
    condition.write(Some(constants), &mut full);
    (shape, full)
}

/// Numbers the slots in the order of the condition and gives the constants in this order.
pub(crate) fn number(condition: &mut Condition, constants: &[Constant]) -> Box<[Constant]> {
    let mut ordered: Vec<Constant> = Vec::with_capacity(constants.len());
    condition.for_each_slot(&mut |slot| {
        if let Some(constant) = constants.get(*slot as usize) {
            ordered.push(constant.clone());
            *slot = ordered.len() as Slot - 1;
        }
    });
    ordered.into()
}
