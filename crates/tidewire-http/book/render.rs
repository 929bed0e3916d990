//! Renders a document as HTML, and collects its headings and the text of its sections.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html,
};

use super::highlight::highlighted;
use super::{Document, link};

/// A rendered document.
#[derive(Default)]
pub struct Rendered {
    /// From the first heading on.
    pub html: String,
    pub sections: Vec<Section>,
}

/// The text from a heading to the next one.
#[derive(Default)]
pub struct Section {
    /// 1 for the document's title, up to 6.
    pub level: usize,
    pub anchor: String,
    pub heading: String,
    /// The text, code included, without markup.
    pub text: String,
}

/// The deepest level of headings that begin a section of the search index.
const SECTION_LEVEL_MAX: HeadingLevel = HeadingLevel::H3;

/// The state of a rendering.
struct Renderer<'a> {
    document: &'a Document,
    targets: &'a HashMap<&'a str, String>,
    events: Vec<Event<'a>>,
    rendered: Rendered,
    /// The heading that is being read.
    heading: Option<Heading>,
    /// The language and text of the code block that is being read.
    code: Option<(String, String)>,
    /// Of each open link whether its start was dropped because it leads out of the site; then its end must be dropped too.
    is_dropped: Vec<bool>,
    /// How many headings have had an anchor.
    anchors: HashMap<String, u32>,
}

struct Heading {
    /// The index of its start among the events.
    at: usize,
    level: HeadingLevel,
    text: String,
    has_link: bool,
}

/// Renders the document. HTML in the document is shown as text, not interpreted as markup.
pub fn rendered<'a>(document: &'a Document, targets: &'a HashMap<&str, String>) -> Rendered {
    let mut renderer = Renderer {
        document,
        targets,
        events: Vec::new(),
        rendered: Rendered::default(),
        heading: None,
        code: None,
        is_dropped: Vec::new(),
        anchors: HashMap::new(),
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for event in Parser::new_ext(&document.text, options) {
        renderer.add(event);
    }
    let Renderer {
        events,
        mut rendered,
        ..
    } = renderer;
    html::push_html(&mut rendered.html, events.into_iter());
    // An empty heading of a column is an ordinary cell.
    rendered.html = rendered.html.replace("<th></th>", "<td></td>");
    rendered
}

impl<'a> Renderer<'a> {
    fn add(&mut self, event: Event<'a>) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => self.begin_heading(level, event),
            Event::End(TagEnd::Heading(_)) => self.end_heading(event),
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => info.split(' ').next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                self.code = Some((language.to_owned(), String::new()));
            }
            Event::End(TagEnd::CodeBlock) => self.end_code(),
            Event::Start(Tag::Link { .. }) => self.begin_link(event),
            Event::End(TagEnd::Link) => {
                if self.is_dropped.pop() == Some(false) {
                    self.events.push(event);
                }
            }
            Event::Start(Tag::Table(_)) => {
                // The group makes an area that scrolls reachable by keyboard.
                self.markup(
                    "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"table\">",
                );
                self.events.push(event);
            }
            Event::End(TagEnd::Table) => {
                self.events.push(event);
                self.markup("</div>\n");
            }
            Event::Html(text) | Event::InlineHtml(text) => {
                self.text(&text.clone(), Event::Text(text))
            }
            Event::Text(ref text) | Event::Code(ref text) => self.text(&text.clone(), event),
            Event::SoftBreak | Event::HardBreak => self.text(" ", event),
            Event::End(_) => {
                self.read(" ");
                self.events.push(event);
            }
            other => self.events.push(other),
        }
    }

    fn markup(&mut self, html: &'static str) {
        self.events.push(Event::Html(html.into()));
    }

    /// Adds an event with this text.
    fn text(&mut self, text: &str, event: Event<'a>) {
        self.read(text);
        if let Some((_, code)) = &mut self.code {
            code.push_str(text);
            return;
        }
        if let Some(heading) = &mut self.heading {
            heading.text.push_str(text);
        }
        self.events.push(event);
    }

    /// Adds text to the section that is being read, unless it belongs to a heading.
    fn read(&mut self, text: &str) {
        if let (None, Some(section)) = (&self.heading, self.rendered.sections.last_mut()) {
            section.text.push_str(text);
        }
    }

    fn begin_heading(&mut self, level: HeadingLevel, event: Event<'a>) {
        self.heading = Some(Heading {
            at: self.events.len(),
            level,
            text: String::new(),
            has_link: false,
        });
        self.events.push(event);
        // The start of the link to the heading itself, once its anchor is known.
        self.events.push(Event::Text("".into()));
    }

    fn end_heading(&mut self, event: Event<'a>) {
        let heading = self.heading.take().expect("a heading has begun");
        let Heading {
            at,
            level,
            text,
            has_link,
        } = heading;
        let anchor = anchor(&text, &mut self.anchors);
        if level > HeadingLevel::H1 && !has_link {
            let start = format!("<a href=\"#{anchor}\">");
            self.events[at + 1] = Event::InlineHtml(start.into());
            self.events.push(Event::InlineHtml("</a>".into()));
        }
        self.events[at] = Event::Start(Tag::Heading {
            level,
            id: Some(CowStr::from(anchor.clone())),
            classes: Vec::new(),
            attrs: Vec::new(),
        });
        self.events.push(event);
        if level <= SECTION_LEVEL_MAX {
            self.rendered.sections.push(Section {
                level: level as usize,
                anchor,
                heading: text,
                text: String::new(),
            });
        }
    }

    fn begin_link(&mut self, event: Event<'a>) {
        let Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) = event
        else {
            return;
        };
        let url = linked(self.document, &dest_url, self.targets);
        self.is_dropped.push(url.is_none());
        let Some(url) = url else { return };
        if let Some(heading) = &mut self.heading {
            heading.has_link = true;
        }
        let dest_url = CowStr::from(url);
        self.events.push(Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }));
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else {
            return;
        };
        self.read(" ");
        // Code that scrolls is reachable by keyboard.
        let html = format!(
            "<div class=\"code\"><pre tabindex=\"0\"><code class=\"language-{}\">{}</code></pre></div>\n",
            escaped(&language),
            highlighted(&code, &language)
        );
        self.events.push(Event::Html(html.into()));
    }
}

/// The anchor of a heading in GitHub's form: letters and digits in lower case, dashes for spaces, and a number if the anchor
/// repeats.
fn anchor(text: &str, taken: &mut HashMap<String, u32>) -> String {
    let kept = text.to_lowercase();
    let kept = kept.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    let anchor: String = kept.collect();
    let count = taken.entry(anchor.clone()).or_insert(0);
    *count += 1;
    match *count {
        1 => anchor,
        count => format!("{anchor}-{}", count - 1),
    }
}

/// The target of a document's link on the site; `None` if the site does not contain it.
fn linked(document: &Document, url: &str, targets: &HashMap<&str, String>) -> Option<String> {
    if url.contains("://") || url.starts_with('#') {
        return Some(url.to_owned());
    }
    let (path, anchor) = match url.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (url, String::new()),
    };
    let mut resolved = PathBuf::new();
    let folder = Path::new(&document.source).parent()?;
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    let target = targets.get(resolved.to_str()?)?;
    Some(format!("{}{anchor}", link(&document.address, target)))
}

/// Text as HTML.
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
