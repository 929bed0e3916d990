//! The site of the documentation, which the build script makes with the same modules.

#[path = "../book/mod.rs"]
mod book;

use std::fs;
use std::path::Path;

#[test]
fn a_page_has_menu_outline_neighbours_and_marked_code() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs");
    let files = book::make(&repository, &out);
    let read = |path: &str| {
        let found = files.iter().find(|(file, _)| file == path);
        let (_, file) = found.unwrap_or_else(|| panic!("{path} is missing"));
        fs::read_to_string(file).expect("a file of the site")
    };
    let page = read("records.html");
    for part in [
        "<a href=\"records\" aria-current=\"page\">Records</a>",
        "<h2 id=\"shapes\"><a href=\"#shapes\">Shapes</a></h2>",
        "<li class=\"level-2\"><a href=\"#shapes\">Shapes</a></li>",
        "<a rel=\"prev\" href=\"from-socketio\"><small>Previous</small>",
        "<a rel=\"next\" href=\"data-modelling\"><small>Next</small>",
        "<span class=\"k\">import</span> { Client }",
        "<a class=\"home\" href=\"./\">Tidewire</a>",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let decision = read("decisions/0053-the-binary-renders-its-documentation.html");
    assert!(decision.contains("href=\"../records\""), "{decision}");
    assert!(read("search.json").contains("[\"records\",\"Records\",\"User guide\"]"));
}
