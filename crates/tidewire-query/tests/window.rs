//! Windows against a full evaluation: random writes with ties, deletes and moves, refills that are read while writes continue, and the
//! changes applied by a subscriber.

mod generator;

use std::collections::BTreeMap;
use std::sync::Arc;

use generator::Random;
use tidewire_query::{
    Change, PredicateIndex, Query, QueryLimits, Refill, Row, Tape, Window, WindowSize,
};

/// The steps of each seed.
const STEPS: usize = 400;

/// The records of a store.
#[derive(Default)]
struct Store(BTreeMap<String, String>);

impl Store {
    /// All matches in the order of the comparator.
    fn result(&self, query: &Query) -> Vec<Row> {
        let mut tapes: Vec<(Tape, &String, &String)> = self
            .0
            .iter()
            .map(|(id, text)| (Tape::new(), id, text))
            .collect();
        let mut matches: Vec<_> = tapes
            .iter_mut()
            .filter_map(|(tape, id, text)| {
                tape.read(id, 1, text)
                    .map(|document| (id.as_str(), document))
            })
            .filter(|(_, document)| query.selector.matches(document))
            .collect();
        matches.sort_by(|(_, left), (_, right)| query.sort.compare(left, right));
        let row = |(id, document): &(&str, _)| {
            let mut key = Vec::new();
            query.sort.key(document, &mut key);
            Row {
                id: (*id).into(),
                key: key.into(),
            }
        };
        matches.iter().map(row).collect()
    }
}

/// A subscriber that applies the changes that it receives. It has the projected value of each shown record.
#[derive(Default)]
struct Subscriber {
    shown: Vec<(Arc<str>, String)>,
}

impl Subscriber {
    fn apply(&mut self, changes: &[Change], value: impl Fn(&str) -> String) {
        for change in changes {
            let place = |shown: &[(Arc<str>, String)], id: &Arc<str>| {
                shown.iter().position(|(it, _)| it == id)
            };
            match change {
                Change::Removed { id } => {
                    let at = place(&self.shown, id).expect("a removed record was shown");
                    self.shown.remove(at);
                }
                Change::Added { id, index } => {
                    assert_eq!(
                        place(&self.shown, id),
                        None,
                        "an added record was not shown"
                    );
                    self.shown.insert(*index, (Arc::clone(id), value(id)));
                }
                Change::Changed { id, index } => {
                    let at = place(&self.shown, id).expect("a changed record was shown");
                    let (_, old) = self.shown.remove(at);
                    let new = value(id);
                    assert!(old != new || at != *index, "a change is not empty");
                    self.shown.insert(*index, (Arc::clone(id), new));
                }
            }
        }
    }
}

/// A refill on its way: the rows that have been read, in pieces between which writes happen.
struct Reading {
    request: Refill,
    rows: Vec<Row>,
}

fn query(random: &mut Random) -> Query {
    let selector = match random.below(4) {
        0 => "{}".into(),
        1 => random.selector(1),
        _ => format!("{{\"a\":{{\"$gte\":{}}}}}", random.below(3)),
    };
    let sort = match random.below(3) {
        0 => random.sort(),
        _ => "[\"b\"]".into(),
    };
    let select = if random.below(2) == 0 {
        "{}".into()
    } else {
        random.select()
    };
    let limit = if random.below(8) == 0 {
        String::new()
    } else {
        format!(",\"limit\":{}", random.below(5))
    };
    let text = format!(
        "{{\"where\":{selector},\"sort\":{sort},\"select\":{select}{limit},\"offset\":{}}}",
        random.below(3) * random.below(2)
    );
    Query::parse(&text, &QueryLimits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A small document of which the sort field is often equal.
fn document(random: &mut Random) -> String {
    match random.below(6) {
        0 => random.document(),
        _ => format!(
            "{{\"a\":{},\"b\":{},\"c\":{{\"a\":{},\"b\":1}}}}",
            random.below(4),
            random.below(3),
            random.below(2)
        ),
    }
}

/// Runs one seed; how many refills it read, and how many writes happened during one.
fn run(seed: u64) -> (usize, usize) {
    let mut random = Random(seed);
    let query = query(&mut random);
    let mut store = Store::default();
    let count = 40 + random.below(40);
    for _ in 0..random.below(80) {
        let id = random.id(count);
        store.0.insert(id, document(&mut random));
    }
    let size = WindowSize {
        offset: query.offset as usize,
        limit: query.limit.map(|limit| limit as usize),
    };
    let mut window = Window::new(size, seed);
    let mut index = PredicateIndex::new(seed);
    index.insert(query.selector.clone());
    let mut subscriber = Subscriber::default();
    let mut reading: Option<Reading> = None;
    let (mut refills, mut during) = (0, 0);
    // A phase mostly inserts or mostly deletes, so that windows grow and run empty.
    let mut deletes = 0;
    for step in 0..STEPS {
        if step % 50 == 0 {
            deletes = random.below(4);
        }
        if reading.is_none()
            && let Some(request) = window.request_refill()
        {
            reading = Some(Reading {
                request,
                rows: Vec::new(),
            });
        }
        let mut changes = Vec::new();
        if reading.is_some() && random.below(3) == 0 {
            read(
                &mut random,
                &query,
                &store,
                &mut window,
                &mut reading,
                &mut changes,
                &mut refills,
            );
            subscriber.apply(&changes, |id| projected(&query, store.0.get(id)));
        } else {
            during += usize::from(reading.is_some());
            write(
                &mut random,
                &query,
                &mut store,
                &mut window,
                &mut index,
                &mut changes,
                (count, deletes),
            );
            subscriber.apply(&changes, |id| projected(&query, store.0.get(id)));
        }
        check(
            seed,
            step,
            &query,
            &store,
            &window,
            &subscriber,
            reading.is_none(),
        );
    }
    (refills, during)
}

fn projected(query: &Query, text: Option<&String>) -> String {
    let mut out = String::new();
    if let Some(text) = text {
        query.projection.apply(text, &mut out);
    }
    out
}

/// Reads the next rows of a refill, or answers it.
fn read(
    random: &mut Random,
    query: &Query,
    store: &Store,
    window: &mut Window,
    reading: &mut Option<Reading>,
    changes: &mut Vec<Change>,
    refills: &mut usize,
) {
    if random.below(10) == 0 {
        *reading = None;
        window.refill_failed();
        return;
    }
    let Some(current) = reading else { return };
    let result = store.result(query);
    let after = current
        .rows
        .last()
        .map(|row| Arc::clone(&row.key))
        .or_else(|| current.request.after.clone());
    let missing = current.request.count - current.rows.len();
    let rest: Vec<Row> = result
        .into_iter()
        .filter(|row| after.as_ref().is_none_or(|after| row.key > *after))
        .take(missing)
        .collect();
    let piece = 1 + random.below(rest.len().max(1));
    let is_last = piece >= rest.len();
    // A record that moved forwards during the scan is read again at its new place.
    for row in rest.into_iter().take(piece) {
        current.rows.retain(|it| it.id != row.id);
        current.rows.push(row);
    }
    if is_last {
        *refills += 1;
        let rows = reading.take().map(|it| it.rows).unwrap_or_default();
        window.refilled(rows, changes);
    }
}

/// Writes or deletes a record and passes the change through the index.
fn write(
    random: &mut Random,
    query: &Query,
    store: &mut Store,
    window: &mut Window,
    index: &mut PredicateIndex,
    changes: &mut Vec<Change>,
    (count, deletes): (usize, usize),
) {
    let id = random.id(count);
    let old_text = store.0.get(&id).cloned();
    let new_text = (random.below(4) >= deletes).then(|| document(random));
    let (mut old_tape, mut new_tape) = (Tape::new(), Tape::new());
    let old = old_text
        .as_ref()
        .and_then(|text| old_tape.read(&id, 1, text));
    let new = new_text
        .as_ref()
        .and_then(|text| new_tape.read(&id, 1, text));
    let shows_change = projected(query, old_text.as_ref()) != projected(query, new_text.as_ref());
    match &new_text {
        Some(text) => store.0.insert(id.clone(), text.clone()),
        None => store.0.remove(&id),
    };
    let mut membership = None;
    index.memberships(old.as_ref(), new.as_ref(), |_, it| membership = Some(it));
    // A write that concerns neither the old nor the new selection reaches no window.
    let Some(membership) = membership else { return };
    let key = new.filter(|_| membership.after).map(|document| {
        let mut key = Vec::new();
        query.sort.key(&document, &mut key);
        key.into()
    });
    window.write(&id.into(), key, shows_change, changes);
}

fn check(
    seed: u64,
    step: usize,
    query: &Query,
    store: &Store,
    window: &Window,
    subscriber: &Subscriber,
    is_resting: bool,
) {
    let visible: Vec<&Arc<str>> = window.visible().iter().map(|row| &row.id).collect();
    let shown: Vec<&Arc<str>> = subscriber.shown.iter().map(|(id, _)| id).collect();
    assert_eq!(
        shown, visible,
        "seed {seed}, step {step}: the changes lead to what is visible"
    );
    for (id, value) in &subscriber.shown {
        assert_eq!(
            *value,
            projected(query, store.0.get(&**id)),
            "seed {seed}, step {step}: {id} is shown as it is stored"
        );
    }
    let result = store.result(query);
    let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
    let expected: Vec<&Row> = result
        .iter()
        .skip(query.offset as usize)
        .take(limit)
        .collect();
    if window.is_full() {
        assert_eq!(
            window.visible().iter().collect::<Vec<_>>(),
            expected,
            "seed {seed}, step {step}"
        );
    } else {
        // Until the refill it shows a beginning of the result.
        assert!(
            expected
                .iter()
                .map(|row| &row.id)
                .zip(&visible)
                .all(|(left, right)| left == *right),
            "seed {seed}, step {step}"
        );
        assert!(
            !is_resting || step == 0 || visible.len() <= expected.len(),
            "seed {seed}, step {step}"
        );
    }
}

#[test]
fn every_window_equals_a_full_evaluation() {
    let seeds = std::env::var("QUERY_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(200);
    let (mut refills, mut during) = (0, 0);
    for seed in 0..seeds {
        let (read, written) = run(seed);
        refills += read;
        during += written;
    }
    println!(
        "{seeds} seeds, {} steps, {refills} refills, {during} writes during a refill",
        seeds as usize * STEPS
    );
    assert!(
        refills as u64 > seeds && during as u64 > 5 * seeds,
        "{refills} {during}"
    );
}

fn row(id: &str, key: u8) -> Row {
    Row {
        id: id.into(),
        key: [key].as_slice().into(),
    }
}

#[test]
fn a_buffer_saves_refills() {
    let size = WindowSize {
        offset: 0,
        limit: Some(4),
    };
    let mut window = Window::new(size, 1);
    let rows: Vec<Row> = (0..100).map(|n| row(&format!("{n:02}"), n)).collect();
    let request = window.request_refill().expect("nothing is known");
    assert_eq!((&request.after, request.count), (&None, 20));
    assert_eq!(window.request_refill(), None, "one refill at a time");
    let mut changes = Vec::new();
    window.refilled(rows[..20].to_vec(), &mut changes);
    assert_eq!(changes.len(), 4);
    let mut requests = 0;
    for row in &rows[..60] {
        window.write(&row.id, None, true, &mut changes);
        if let Some(request) = window.request_refill() {
            requests += 1;
            let rest = rows
                .iter()
                .filter(|row| request.after.as_ref().is_none_or(|after| row.key > *after));
            let rest = rest.take(request.count).cloned().collect();
            window.refilled(rest, &mut changes);
        }
        assert!(window.is_full() && window.visible().len() == 4);
    }
    assert!(requests <= 60 / 8, "{requests} refills for 60 removals");
}

#[test]
fn a_window_without_a_limit_holds_all() {
    let size = WindowSize {
        offset: 0,
        limit: None,
    };
    let mut window = Window::new(size, 1);
    assert_eq!(window.request_refill().map(|it| it.after), Some(None));
    let mut changes = Vec::new();
    window.refilled(vec![row("a", 1)], &mut changes);
    window.write(&"b".into(), Some([2].as_slice().into()), true, &mut changes);
    assert_eq!(window.visible(), [row("a", 1), row("b", 2)]);
    assert_eq!(window.request_refill(), None);
    assert!(window.heap_bytes() > 0);
}
