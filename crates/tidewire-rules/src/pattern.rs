//! Paths of rules: `*` matches any characters, `$name` one or more without `/`, `.` any one character, and every
//! other character itself. A path matches a whole name, like an anchored regular expression: each wildcard takes as
//! much as it can. The work is bounded by wildcards times bytes of the name.

use smallvec::SmallVec;

use crate::limits::RuleLimits;

/// The values of a path's variables.
pub type Variables<'n> = SmallVec<[&'n str; 4]>;

/// A path.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
    variables: Vec<String>,
    /// The start of every name that the path matches.
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// `.`
    One,
    /// `*`
    Star,
    /// `$name`
    Variable,
}

/// A known failure of a wildcard: if its part ends at `end` or before, a start at `from` or later fails.
#[derive(Clone, Copy)]
struct Failed {
    end: usize,
    from: usize,
}

impl Pattern {
    /// Parses a path.
    ///
    /// # Errors
    /// The reason and the byte.
    pub fn parse(text: &str, limits: &RuleLimits) -> Result<Self, (String, usize)> {
        if text.is_empty() {
            return Err(("a path can't be empty".into(), 0));
        }
        if text.starts_with('/') {
            return Err(("a path can't start with `/`".into(), 0));
        }
        if text.len() > limits.path_bytes_max {
            return Err((
                format!("the path has more than {} bytes", limits.path_bytes_max),
                0,
            ));
        }
        let mut pattern = Self {
            text: text.to_owned(),
            tokens: Vec::new(),
            variables: Vec::new(),
            prefix: String::new(),
        };
        let mut at = 0;
        while let Some(letter) = text[at..].chars().next() {
            let start = at;
            at += letter.len_utf8();
            match letter {
                '*' => pattern.tokens.push(Token::Star),
                '.' => pattern.tokens.push(Token::One),
                '$' => {
                    let end = text[at..]
                        .find(|letter: char| !letter.is_ascii_alphanumeric())
                        .map_or(text.len(), |length| at + length);
                    let name = &text[start..end];
                    if end == at {
                        return Err(("`$` without a variable name".into(), start));
                    }
                    if pattern.variables.iter().any(|known| known == name) {
                        return Err((format!("the path has `{name}` twice"), start));
                    }
                    pattern.variables.push(name.to_owned());
                    pattern.tokens.push(Token::Variable);
                    at = end;
                }
                '\\' | '^' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '+' | '?' => {
                    let reason = format!(
                        "`{letter}` is an operator of regular expressions, which paths do not support"
                    );
                    return Err((reason, start));
                }
                _ => match pattern.tokens.last_mut() {
                    Some(Token::Literal(literal)) => literal.push(letter),
                    _ => pattern.tokens.push(Token::Literal(letter.to_string())),
                },
            }
        }
        if let Some(Token::Literal(literal)) = pattern.tokens.first() {
            pattern.prefix.clone_from(literal);
        }
        let is_wildcard = |token: &&Token| matches!(token, Token::Star | Token::Variable);
        let wildcards = pattern.tokens.iter().filter(is_wildcard).count();
        if wildcards > limits.path_wildcards_max {
            let reason = format!(
                "the path has more than {} wildcards",
                limits.path_wildcards_max
            );
            return Err((reason, 0));
        }
        Ok(pattern)
    }

    /// The path as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of the variables, with their `$`.
    #[must_use]
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// Whether the path matches the whole `name`, with the values of its variables.
    #[must_use]
    pub fn matches<'n>(&self, name: &'n str) -> Option<Variables<'n>> {
        if !name.as_bytes().starts_with(self.prefix.as_bytes()) {
            return None;
        }
        if let [Token::Star] = self.tokens.as_slice() {
            return Some(Variables::new());
        }
        let unknown = Failed {
            end: usize::MAX,
            from: usize::MAX,
        };
        let mut search = Search {
            name,
            failed: SmallVec::from_elem(unknown, self.tokens.len()),
            found: SmallVec::new(),
        };
        search.run(&self.tokens, 0, 0).then(|| {
            search.found.reverse();
            search.found
        })
    }

    /// Whether the path matches some name that begins with `prefix`.
    #[must_use]
    pub fn may_begin_with(&self, prefix: &str) -> bool {
        // The positions in the prefix that the tokens before the next one can reach.
        let mut reached = vec![false; prefix.len() + 1];
        reached[0] = true;
        for token in &self.tokens {
            // The rest of the path after the whole prefix always matches some text.
            if reached[prefix.len()] {
                return true;
            }
            let mut next = vec![false; prefix.len() + 1];
            let mut is_in_variable = false;
            for (at, letter) in prefix.char_indices() {
                let behind = at + letter.len_utf8();
                let rest = &prefix[at..];
                match token {
                    Token::Star if reached[at] => return true,
                    Token::Literal(literal) if reached[at] => {
                        if literal.starts_with(rest) {
                            return true;
                        }
                        if rest.starts_with(literal.as_str()) {
                            next[at + literal.len()] = true;
                        }
                    }
                    Token::One => next[behind] |= reached[at],
                    Token::Variable => {
                        is_in_variable = letter != '/' && (is_in_variable || reached[at]);
                        next[behind] |= is_in_variable;
                    }
                    Token::Star | Token::Literal(_) => {}
                }
            }
            reached = next;
        }
        reached[prefix.len()]
    }

    /// Whether the path matches every name that begins with `prefix`. False negatives are possible.
    #[must_use]
    pub fn takes_all_with(&self, prefix: &str) -> bool {
        match self.tokens.as_slice() {
            [Token::Star] => true,
            [Token::Literal(literal), Token::Star] => prefix.starts_with(literal.as_str()),
            _ => false,
        }
    }
}

struct Search<'n> {
    name: &'n str,
    failed: SmallVec<[Failed; 8]>,
    /// The variables in reverse order: each is known once everything after it is.
    found: Variables<'n>,
}

impl Search<'_> {
    /// Whether the tokens from `first` on match the name from `at` on. Recurses once per wildcard.
    fn run(&mut self, tokens: &[Token], first: usize, mut at: usize) -> bool {
        let mut index = first;
        loop {
            let rest = &self.name[at..];
            match tokens.get(index) {
                None => return rest.is_empty(),
                Some(Token::Literal(literal)) => {
                    if !rest.starts_with(literal.as_str()) {
                        return false;
                    }
                    at += literal.len();
                }
                Some(Token::One) => match rest.chars().next() {
                    Some(letter) => at += letter.len_utf8(),
                    None => return false,
                },
                Some(Token::Star) => return self.wildcard(tokens, index, at, self.name.len(), at),
                Some(Token::Variable) => {
                    let end = at + rest.find('/').unwrap_or(rest.len());
                    let Some(letter) = self.name[at..end].chars().next() else {
                        return false;
                    };
                    return self.wildcard(tokens, index, at, end, at + letter.len_utf8());
                }
            }
            index += 1;
        }
    }

    /// Tries the ends of a wildcard from `end` down to `least`.
    fn wildcard(
        &mut self,
        tokens: &[Token],
        index: usize,
        at: usize,
        end: usize,
        least: usize,
    ) -> bool {
        let known = self.failed[index];
        let mut to = if known.end == end { known.from } else { end };
        loop {
            if to < least {
                break;
            }
            // In an earlier start of this wildcard its shortest part was one character longer; trying that end once
            // more costs one step.
            if self.name.is_char_boundary(to) && self.run(tokens, index + 1, to) {
                if tokens[index] == Token::Variable {
                    self.found.push(&self.name[at..to]);
                }
                return true;
            }
            if to == 0 {
                break;
            }
            to -= 1;
        }
        self.failed[index] = Failed {
            end,
            from: at.min(if known.end == end { known.from } else { at }),
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, name: &str, expected: Option<&[&str]>) {
        let pattern = Pattern::parse(path, &RuleLimits::default()).expect(path);
        let found = pattern.matches(name);
        assert_eq!(found.as_deref(), expected, "{path} {name}");
    }

    #[test]
    fn paths_take_whole_names() {
        check("*", "", Some(&[]));
        check("*", "any/thing\nat all", Some(&[]));
        check("a/b", "a/b", Some(&[]));
        check("a/b", "a/bc", None);
        check("a/*", "a/", Some(&[]));
        check("a/*", "a", None);
        check("*/b", "a/c/b", Some(&[]));
        check("a/$id", "a/7", Some(&["7"]));
        check("a/$id", "a/", None);
        check("a/$id", "a/7/8", None);
        check("a/$id/$part", "a/7/x", Some(&["7", "x"]));
        check("$a-$b", "x-y-z", Some(&["x-y", "z"]));
        check("$a$b", "xyz", Some(&["xy", "z"]));
        check("$id_x", "7_x", Some(&["7"]));
        check("a.c", "abc", Some(&[]));
        check("a.c", "aéc", Some(&[]));
        check("*a*b*c*", "xxaxxbxxc", Some(&[]));
        check("*a*b*c*", "xxaxxcxxb", None);
        check("ü/$id", "ü/ü", Some(&["ü"]));
        check("$a/é*", "ö/é", Some(&["ö"]));
    }

    #[test]
    fn wrong_paths_are_refused_with_the_offset_of_the_error() {
        let limits = RuleLimits::default();
        for (path, offset) in [
            ("", 0),
            ("/a", 0),
            ("a/$", 2),
            ("a/$x/$x", 5),
            ("a+", 1),
            ("a(b)", 1),
        ] {
            assert_eq!(
                Pattern::parse(path, &limits).expect_err(path).1,
                offset,
                "{path}"
            );
        }
        assert!(Pattern::parse(&"*".repeat(33), &limits).is_err());
    }

    #[test]
    fn a_path_may_take_names_with_a_prefix() {
        for (path, prefix, expected) in [
            ("*", "any", true),
            ("price/*", "", true),
            ("price/*", "pri", true),
            ("price/*", "price/tide", true),
            ("price/*", "prices", false),
            ("price/*", "secret/", false),
            ("price/tide", "price/tide", true),
            ("price/tide", "price/tides", false),
            ("chat/$room", "chat/a", true),
            ("chat/$room", "chat/a/", false),
            ("chat/$room/text", "chat/a/te", true),
            ("chat/$room/text", "chat/a/x", false),
            ("chat/$room/text", "chat//", false),
            ("$a-$b/c", "x-y-z/", true),
            ("$a-$b/c", "x/", false),
            ("a.c", "aé", true),
            ("a.c", "aéd", false),
            ("a*c", "abd", true),
        ] {
            let pattern = Pattern::parse(path, &RuleLimits::default()).expect(path);
            assert_eq!(pattern.may_begin_with(prefix), expected, "{path} {prefix}");
            assert!(
                !pattern.takes_all_with(prefix) || expected,
                "{path} {prefix}"
            );
        }
        let all = Pattern::parse("price/*", &RuleLimits::default()).expect("a path");
        assert!(all.takes_all_with("price/t") && !all.takes_all_with("pri"));
    }

    #[test]
    fn hostile_names_cost_no_more_than_wildcards_times_bytes() {
        // Without the remembered failures this would take exponential time.
        check(&format!("{}!", "*a".repeat(30)), &"a".repeat(1024), None);
        check(
            &format!(
                "{}!",
                ('a'..='z')
                    .map(|letter| format!("${letter}-"))
                    .collect::<String>()
            ),
            &"a-".repeat(500),
            None,
        );
    }
}
