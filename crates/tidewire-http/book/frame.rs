//! Puts a rendered document into a page: header, menu, outline, links to the previous and the next page.

use std::fmt::Write as _;

use super::render::{Rendered, Section, escaped};
use super::{Document, FOLDERS, MENU, link, to_root};

/// A page with at least this many headings has an outline.
const OUTLINE_MIN: usize = 3;
/// An outline has the headings of the third level, too, unless it is longer than this.
const OUTLINE_MAX: usize = 40;

/// The page of a document.
pub fn framed(address: &str, title: &str, content: &Rendered, documents: &[Document]) -> String {
    let root = to_root(address);
    let home = link(address, "");
    let (heading, text) = split(&content.html);
    let outline = outline(&content.sections);
    let around = around(address, documents);
    let menu = menu(address, documents);
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} - Tidewire</title>\n\
         <link rel=\"icon\" href=\"{root}icon.svg\">\n<link rel=\"stylesheet\" href=\"{root}style.css\">\n\
         <script type=\"module\" src=\"{root}page.js\"></script>\n</head>\n<body>\n\
         <header>\n<a class=\"home\" href=\"{home}\">Tidewire</a>\n<a class=\"to-menu\" href=\"#menu\">Menu</a>\n</header>\n\
         <div class=\"page\">\n<main>\n{heading}{outline}<div class=\"text\">\n{text}{around}</div>\n</main>\n\
         <nav id=\"menu\" aria-label=\"Documents\">\n{menu}</nav>\n</div>\n</body>\n</html>\n"
    )
}

/// The first heading of a page, and the rest.
fn split(html: &str) -> (&str, &str) {
    let end = "</h1>\n";
    let at = html.find(end).map_or(0, |at| at + end.len());
    html.split_at(at)
}

/// Links to the sections of a page.
fn outline(sections: &[Section]) -> String {
    let of = |max: usize| {
        let listed = sections.iter();
        listed.filter(move |section| (2..=max).contains(&section.level))
    };
    let max = if of(3).count() > OUTLINE_MAX { 2 } else { 3 };
    if of(max).count() < OUTLINE_MIN {
        return String::new();
    }
    let mut list = "<nav class=\"outline\" aria-label=\"On this page\">\n<ul>\n".to_owned();
    for Section {
        level,
        anchor,
        heading,
        ..
    } in of(max)
    {
        let heading = escaped(heading);
        let _ = writeln!(
            list,
            "<li class=\"level-{level}\"><a href=\"#{anchor}\">{heading}</a></li>"
        );
    }
    list + "</ul>\n</nav>\n"
}

/// Links to the neighbours of a page in the menu.
fn around(address: &str, documents: &[Document]) -> String {
    let pages: Vec<&str> = MENU
        .iter()
        .flat_map(|(_, group)| group.iter().map(|(_, page)| *page))
        .collect();
    let Some(at) = pages.iter().position(|page| *page == address) else {
        return String::new();
    };
    let mut links = "<nav class=\"around\" aria-label=\"Previous and next page\">\n".to_owned();
    let neighbours = [
        (at.checked_sub(1), "prev", "Previous"),
        (at.checked_add(1), "next", "Next"),
    ];
    for (neighbour, relation, name) in neighbours {
        if let Some(page) = neighbour.and_then(|at| pages.get(at)) {
            let url = link(address, page);
            let title = escaped(title_of(page, documents));
            let _ = writeln!(
                links,
                "<a rel=\"{relation}\" href=\"{url}\"><small>{name}</small> {title}</a>"
            );
        }
    }
    links + "</nav>\n"
}

fn menu(address: &str, documents: &[Document]) -> String {
    let entry = |page: &str, title: &str| {
        let current = match page == address {
            true => " aria-current=\"page\"",
            false => "",
        };
        format!(
            "<li><a href=\"{}\"{current}>{}</a></li>\n",
            link(address, page),
            escaped(title)
        )
    };
    let mut menu = String::new();
    for (name, group) in MENU {
        let _ = writeln!(menu, "<h2>{name}</h2>\n<ul>");
        for (_, page) in group {
            menu += &entry(page, title_of(page, documents));
        }
        menu += "</ul>\n";
    }
    // The folders belong to the last part of the menu.
    menu.truncate(menu.len() - "</ul>\n".len());
    for (_, folder, title) in FOLDERS {
        menu += &entry(&format!("{folder}/"), title);
    }
    menu + "</ul>\n"
}

fn title_of<'a>(address: &str, documents: &'a [Document]) -> &'a str {
    let mut documents = documents.iter();
    let found = documents.find(|document| document.address == address);
    found.map_or("", |document| document.title.as_str())
}
