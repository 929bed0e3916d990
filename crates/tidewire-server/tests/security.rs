//! SECURITY.md names tests as evidence; each of these tests must exist.

use std::path::Path;

/// The separator between the file and the name of a test.
const BETWEEN: &str = " · ";

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let page = read(&repository.join("SECURITY.md"));
    let named = page.split('`').filter_map(|span| span.split_once(BETWEEN));
    // The page has one example that explains the form.
    let named: Vec<_> = named.filter(|(file, _)| *file != "FILE").collect();
    let missing: Vec<_> = named
        .iter()
        .filter(|(file, name)| !read(&repository.join(file)).contains(name))
        .collect();
    assert!(missing.is_empty(), "not found: {missing:#?}");
    assert!(named.len() >= 30, "the page names {} tests", named.len());
}
