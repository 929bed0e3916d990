//! The text with which every match of a pattern begins.

/// Characters that may have a special meaning in a pattern.
const META: &str = "\\.+*?()|[]{}^$#&-~ \t\n";

/// The literal text at the start of a pattern, after `^` if it has one. Every match of the pattern begins with this text. The result may be
/// shorter than possible, and is empty if the pattern has alternatives.
pub fn literal_prefix(pattern: &str) -> String {
    if has_alternatives(pattern) {
        return String::new();
    }
    let mut prefix = String::new();
    let mut rest = pattern.strip_prefix('^').unwrap_or(pattern).chars();
    loop {
        let mut ahead = rest.clone();
        let literal = match ahead.next() {
            // An escaped letter or digit is a class or an assertion. Any other escaped character is literal.
            Some('\\') => ahead.next().filter(|escaped| !escaped.is_alphanumeric()),
            Some(' ' | '#' | '&' | '-' | '~') => rest.clone().next(),
            letter => letter.filter(|letter| !META.contains(*letter)),
        };
        let Some(literal) = literal else {
            return prefix;
        };
        match ahead.clone().next() {
            // The character is optional.
            Some('?' | '*' | '{') => return prefix,
            Some('+') => {
                prefix.push(literal);
                return prefix;
            }
            _ => prefix.push(literal),
        }
        rest = ahead;
    }
}

/// Whether a `|` is outside of groups. A bracket within a class may hide one. The prefix is then too long, and the server uses it to decide
/// whether it accepts the pattern. The names that it offers are authorized one by one in any case.
fn has_alternatives(pattern: &str) -> bool {
    let (mut depth, mut letters) = (0_i32, pattern.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth <= 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_what_every_match_begins_with() {
        for (pattern, expected) in [
            ("^price/", "price/"),
            ("price/.*", "price/"),
            ("price/|.*", ""),
            ("^(price|rate)/", ""),
            ("price/(a|b)", "price/"),
            (r"price\|x", "price|x"),
            (r"price\.x", "price.x"),
            (r"price\d", "price"),
            ("prices?/", "price"),
            ("prices*", "price"),
            ("prices{0,1}", "price"),
            ("prices+x", "prices"),
            ("price-list #1", "price-list #1"),
            ("(?i)price", ""),
            ("[p]rice", ""),
            ("", ""),
            ("^", ""),
            ("é/.*", "é/"),
            ("a$", "a"),
        ] {
            assert_eq!(literal_prefix(pattern), expected, "{pattern}");
        }
    }
}
