//! Writes the index of the search as JSON. `search.js` reads it and ranks the pages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::render::Section;

/// A page of the index.
pub struct Page<'a> {
    pub address: &'a str,
    pub title: &'a str,
    pub group: &'a str,
    pub sections: &'a [Section],
}

/// Shorter words are not found, longer ones are keys and hashes.
const WORD_CHARACTERS: std::ops::RangeInclusive<usize> = 2..=40;
/// Numbers and hashes of at least this many characters are not found.
const NUMBER_CHARACTERS_MAX: usize = 6;

/// The index of the pages:
///
/// - `pages`: address, title and part of the menu of each page
/// - `sections`: the number of the page, anchor, heading and count of words of each section
/// - `words`: the sections that contain a word, in base 36 and in order. Each is the distance to the section before, followed by a
///   colon and the count of the word if it is not 1.
pub fn index<'a>(pages: impl Iterator<Item = Page<'a>>) -> String {
    let mut listed = Vec::new();
    let mut sections = Vec::new();
    let mut words: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for page in pages {
        for section in page.sections {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for word in words_of(&section.text) {
                *counts.entry(word).or_insert(0) += 1;
            }
            let length: usize = counts.values().sum();
            for (word, count) in counts {
                let found = words.entry(word).or_default();
                found.push((sections.len(), count));
            }
            let anchor = match section.level {
                1 => "",
                _ => &section.anchor,
            };
            sections.push(format!(
                "[{},{},{},{length}]",
                listed.len(),
                quoted(anchor),
                quoted(&section.heading)
            ));
        }
        listed.push(format!(
            "[{},{},{}]",
            quoted(page.address),
            quoted(page.title),
            quoted(page.group)
        ));
    }
    let words = words
        .iter()
        .map(|(word, found)| format!("{}:{}", quoted(word), quoted(&postings(found))));
    format!(
        "{{\"pages\":[{}],\n\"sections\":[{}],\n\"words\":{{{}}}}}\n",
        listed.join(","),
        sections.join(","),
        words.collect::<Vec<_>>().join(",")
    )
}

/// The words of a text in lower case, as `search.js` divides a query. A word with underscores is followed by its parts.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let divided = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    let with_parts = divided.flat_map(|word| {
        let parts = word.split('_').filter(move |_| word.contains('_'));
        std::iter::once(word).chain(parts)
    });
    with_parts
        .filter(|word| WORD_CHARACTERS.contains(&word.chars().count()) && !is_number(word))
        .map(str::to_lowercase)
}

/// Whether this is a long number or the hash of a commit.
fn is_number(word: &str) -> bool {
    word.len() > NUMBER_CHARACTERS_MAX
        && word.contains(|character: char| character.is_ascii_digit())
        && word
            .chars()
            .all(|character| character.is_ascii_hexdigit() || character == '_')
}

fn postings(found: &[(usize, usize)]) -> String {
    let mut text = String::new();
    let mut before = 0;
    for (section, count) in found {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{}", base_36(section - before));
        if *count != 1 {
            let _ = write!(text, ":{}", base_36(*count));
        }
        before = *section;
    }
    text
}

fn base_36(mut number: usize) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = u32::try_from(number % 36).expect("a digit is small");
        digits.push(char::from_digit(digit, 36).expect("a digit of base 36"));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// A text of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole_and_in_parts() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(words_of(text).collect::<Vec<_>>(), expected, "{text}");
        };
        check(
            "It's `a/$b` of 10,000 Clients",
            &["it", "of", "10", "000", "clients"],
        );
        check("MESSAGE_DENIED", &["message_denied", "message", "denied"]);
        check(
            "3cda9c4 of 2026-11-20, 1795305745, feedback",
            &["of", "2026", "11", "20", "feedback"],
        );
        check("Größe", &["größe"]);
    }

    #[test]
    fn sections_of_a_word_are_distances_in_base_36() {
        let section = |level, heading: &str, text: &str| Section {
            level,
            anchor: heading.to_lowercase(),
            heading: heading.to_owned(),
            text: text.to_owned(),
        };
        let mut sections = vec![
            section(1, "Title", "one \"quoted\" word"),
            section(2, "Part", "two"),
        ];
        sections.extend((0..40).map(|_| section(3, "More", "")));
        sections.push(section(2, "End", "one two two"));
        let page = Page {
            address: "page",
            title: "A \"title\"",
            group: "Start",
            sections: &sections,
        };
        let index = index(std::iter::once(page));
        for part in [
            r#""pages":[["page","A \"title\"","Start"]]"#,
            r#""sections":[[0,"","Title",3],[0,"part","Part",1],"#,
            r#""words":{"one":"0 16","quoted":"0","two":"1 15:2","word":"0"}"#,
        ] {
            assert!(index.contains(part), "{index}");
        }
    }
}
