//! Marks the parts of code in the languages of the documents: comments, texts, numbers, keywords and names of settings.
//!
//! It divides code into words, and does not parse it. Where it cannot know better it marks nothing: an apostrophe without a second
//! one on its line begins no text.

use super::render::escaped;

/// The lexical rules of a language.
#[derive(Clone, Copy)]
struct Language {
    /// A comment begins with this text, at the beginning of a line or after a space, and ends with the line.
    comment: &'static str,
    /// Whether `/* ... */` is a comment.
    has_block_comments: bool,
    /// The characters that begin and end a text. Only a text in backticks continues on the next line.
    quotes: &'static str,
    keywords: Keywords,
    names: Names,
}

#[derive(Clone, Copy)]
enum Keywords {
    Are(&'static [&'static str]),
    Capitals,
}

/// Which words are names of settings.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    None,
    /// Words and texts before a colon.
    BeforeColon,
    /// The first word of a line.
    AtLineStart,
    /// Words that begin with a dash.
    Options,
}

/// The classes of the marked parts in `style.css`.
const COMMENT: &str = "c";
const TEXT: &str = "s";
const NUMBER: &str = "n";
const KEYWORD: &str = "k";
const NAME: &str = "p";

const SCRIPT: Language = Language {
    comment: "//",
    has_block_comments: true,
    quotes: "'\"`",
    keywords: Keywords::Are(&[
        "as",
        "async",
        "await",
        "catch",
        "class",
        "const",
        "else",
        "export",
        "extends",
        "false",
        "for",
        "from",
        "function",
        "if",
        "import",
        "in",
        "instanceof",
        "interface",
        "let",
        "new",
        "null",
        "of",
        "return",
        "throw",
        "true",
        "try",
        "type",
        "typeof",
        "undefined",
        "while",
    ]),
    names: Names::None,
};
const SHELL: Language = Language {
    comment: "#",
    has_block_comments: false,
    quotes: "'\"",
    keywords: Keywords::Are(&["do", "done", "else", "fi", "for", "if", "then", "while"]),
    names: Names::Options,
};
const DATA: Language = Language {
    comment: "#",
    has_block_comments: false,
    quotes: "'\"",
    keywords: Keywords::Are(&["false", "none", "null", "true"]),
    names: Names::BeforeColon,
};
const SETTINGS: Language = Language {
    comment: "#",
    has_block_comments: false,
    quotes: "'\"",
    keywords: Keywords::Are(&[]),
    names: Names::AtLineStart,
};
const SQL: Language = Language {
    comment: "--",
    has_block_comments: false,
    quotes: "'",
    keywords: Keywords::Capitals,
    names: Names::None,
};
const RUST: Language = Language {
    comment: "//",
    has_block_comments: true,
    quotes: "\"",
    keywords: Keywords::Are(&[
        "const", "else", "enum", "false", "fn", "for", "if", "impl", "in", "let", "match", "mod",
        "move", "mut", "pub", "return", "self", "static", "struct", "trait", "true", "type", "use",
        "where", "while",
    ]),
    names: Names::None,
};
const PYTHON: Language = Language {
    comment: "#",
    has_block_comments: false,
    quotes: "'\"",
    keywords: Keywords::Are(&[
        "False", "None", "True", "as", "async", "await", "class", "def", "elif", "else", "except",
        "for", "from", "if", "import", "in", "not", "return", "try", "while", "with",
    ]),
    names: Names::None,
};

/// The code as HTML, with marks if the language is known.
pub fn highlighted(code: &str, language: &str) -> String {
    if language == "console" {
        return console(code);
    }
    match language_of(language) {
        Some(language) => marked(code, language),
        None => escaped(code),
    }
}

fn language_of(name: &str) -> Option<Language> {
    Some(match name {
        "js" | "ts" | "tsx" => SCRIPT,
        "sh" => SHELL,
        "yaml" | "yml" | "json" | "jsonl" | "prometheus" => DATA,
        "nginx" | "haproxy" | "redis" | "systemd" => SETTINGS,
        "sql" => SQL,
        "rust" => RUST,
        "python" | "py" => PYTHON,
        _ => return None,
    })
}

/// Commands after a `$`, which are marked, and their output.
fn console(code: &str) -> String {
    let mut html = String::new();
    for line in code.split_inclusive('\n') {
        match line.strip_prefix("$ ") {
            Some(command) => {
                mark(&mut html, COMMENT, "$ ");
                html += &marked(command, SHELL);
            }
            None => html += &escaped(line),
        }
    }
    html
}

fn mark(html: &mut String, class: &str, text: &str) {
    *html += &format!("<span class=\"{class}\">{}</span>", escaped(text));
}

fn marked(code: &str, language: Language) -> String {
    let mut html = String::new();
    let mut at = 0;
    while let Some(next) = code[at..].chars().next() {
        let (length, class) = part(code, at, language).unwrap_or((next.len_utf8(), ""));
        let text = &code[at..at + length];
        match class {
            "" => html += &escaped(text),
            class => mark(&mut html, class, text),
        }
        at += length;
    }
    html
}

/// The length in bytes and the class of the part of the code at this place, which is empty for an unmarked word; `None` for a
/// single character without a mark.
fn part(code: &str, at: usize, language: Language) -> Option<(usize, &'static str)> {
    let (before, rest) = code.split_at(at);
    let follows_space = before.chars().next_back().is_none_or(char::is_whitespace);
    if follows_space && rest.starts_with(language.comment) {
        return Some((rest.find('\n').unwrap_or(rest.len()), COMMENT));
    }
    if language.has_block_comments && rest.starts_with("/*") {
        let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
        return Some((end, COMMENT));
    }
    let first = rest.chars().next()?;
    if language.quotes.contains(first)
        && let Some(length) = text_length(rest, first)
    {
        return Some((length, class_of_text(&rest[length..], language)));
    }
    if first.is_ascii_digit() {
        return Some((length_of(rest, |next| is_word(next) || next == '.'), NUMBER));
    }
    if first == '-' && follows_space && language.names == Names::Options {
        return Some((length_of(rest, |next| is_word(next) || next == '-'), NAME));
    }
    if !is_word(first) {
        return None;
    }
    let has_dashes = !matches!(language.names, Names::None | Names::Options);
    let length = length_of(rest, |next| is_word(next) || next == '-' && has_dashes);
    let is_first = before
        .rsplit('\n')
        .next()
        .is_some_and(|line| line.trim().is_empty());
    let class = class_of_word(&rest[..length], &rest[length..], is_first, language);
    Some((length, class))
}

fn class_of_text(after: &str, language: Language) -> &'static str {
    match language.names == Names::BeforeColon && after.starts_with(':') {
        true => NAME,
        false => TEXT,
    }
}

fn class_of_word(word: &str, after: &str, is_first: bool, language: Language) -> &'static str {
    let is_keyword = match language.keywords {
        Keywords::Are(keywords) => keywords.contains(&word),
        Keywords::Capitals => word.len() > 1 && word.chars().all(|next| next.is_ascii_uppercase()),
    };
    // A colon that no space follows belongs to an address.
    let is_before_colon = after.starts_with(": ") || after.starts_with(":\n");
    match language.names {
        Names::BeforeColon if is_before_colon => NAME,
        Names::AtLineStart if is_first => NAME,
        _ if is_keyword => KEYWORD,
        _ => "",
    }
}

/// The length of a text with its quotes; `None` if it has no end.
fn text_length(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, next) in rest.char_indices().skip(1) {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\n' if quote != '`' => return None,
            _ if next == quote => return Some(at + next.len_utf8()),
            _ => {}
        }
    }
    None
}

fn length_of(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    rest.find(|next| !belongs(next)).unwrap_or(rest.len())
}

fn is_word(next: char) -> bool {
    next.is_alphanumeric() || matches!(next, '_' | '$')
}

#[cfg(test)]
mod tests {
    use super::highlighted;

    #[test]
    fn parts_of_code_are_marked() {
        let check = |language: &str, code: &str, expected: &str| {
            let html = highlighted(code, language);
            let short = html.replace("<span class=\"", "{").replace("</span>", "}");
            assert_eq!(short.replace("\">", " "), expected, "{language}");
        };
        check(
            "ts",
            "const a = 'x' // it's 1",
            "{k const} a = {s 'x'} {c // it's 1}",
        );
        check(
            "ts",
            "/* a\nb */ f(`\n${1}`)",
            "{c /* a\nb */} f({s `\n${1}`})",
        );
        check("ts", "it's newer than 2", "it's newer than {n 2}");
        check(
            "sh",
            "curl -sf 'a\\'b' --data=1 a-b # no",
            "curl {p -sf} {s 'a\\'b'} {p --data}={n 1} a-b {c # no}",
        );
        check(
            "yaml",
            "# c\nurl: http://a:80/\nkey-one: [true]\n",
            "{c # c}\n{p url}: http://a:{n 80}/\n{p key-one}: [{k true}]\n",
        );
        check(
            "json",
            "{\"a\": \"b\", \"c\":1}",
            "{{p &quot;a&quot;}: {s &quot;b&quot;}, {p &quot;c&quot;}:{n 1}}",
        );
        check(
            "nginx",
            "  listen 443 ssl;\n}",
            "  {p listen} {n 443} ssl;\n}",
        );
        check(
            "sql",
            "SELECT a FROM b -- c",
            "{k SELECT} a {k FROM} b {c -- c}",
        );
        check("console", "$ ls -l\na -l\n", "{c $ }ls {p -l}\na -l\n");
        check("text", "const <a>", "const &lt;a&gt;");
        check("ts", "", "");
    }

    #[test]
    fn marks_change_no_text() {
        let code = "a 'ä' `\\`` \"\\\\\" -x #1 // ü\n/* ";
        for language in [
            "ts", "sh", "yaml", "nginx", "sql", "rust", "python", "console",
        ] {
            let html = highlighted(code, language);
            let mut text = String::new();
            for (i, part) in html.split('<').enumerate() {
                text += if i == 0 {
                    part
                } else {
                    part.split_once('>').expect("a tag").1
                };
            }
            assert_eq!(text, super::escaped(code), "{language}");
        }
    }
}
