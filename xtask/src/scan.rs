//! Looks at Rust source without parsing it: enough to tell code from comments and strings, to match
//! braces and to find words. A parser would know more and pull in more than it is worth here.

/// The source with comments and the insides of strings and characters turned to spaces. Bytes keep
/// their places and lines their numbers.
pub fn mask(text: &str) -> String {
    let mut masked = text.as_bytes().to_vec();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (end, blank) = next(bytes, at);
        if let Some((from, to)) = blank {
            for byte in &mut masked[from..to] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    String::from_utf8(masked).expect("whole tokens are blanked")
}

/// Where the insides of strings and characters are, outside comments.
pub fn literals(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (end, blank) = next(bytes, at);
        found.extend(blank.filter(|_| bytes[at] != b'/'));
        at = end;
    }
    found
}

/// The token at `at`: its end, and the part of it that is not code.
fn next(bytes: &[u8], at: usize) -> (usize, Option<(usize, usize)>) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let end = at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        return (end, Some((at, end)));
    }
    if rest.starts_with(b"/*") {
        let end = block_comment(bytes, at);
        return (end, Some((at, end)));
    }
    let fresh = at == 0 || !is_word(bytes[at - 1]);
    if fresh && let Some((open, hashes)) = raw_string(rest) {
        let close: Vec<u8> = [b'"'].into_iter().chain((0..hashes).map(|_| b'#')).collect();
        let inside = at + open;
        let end = find(bytes, inside, &close).unwrap_or(bytes.len());
        return ((end + close.len()).min(bytes.len()), Some((inside, end)));
    }
    match rest[0] {
        b'"' => {
            let end = quoted(bytes, at + 1, b'"');
            (end + 1, Some((at + 1, end)))
        }
        b'\'' => character(bytes, at),
        _ => (at + 1, None),
    }
}

/// Where a block comment that begins at `at` ends; they nest.
fn block_comment(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            (depth, i) = (depth + 1, i + 2);
        } else if bytes[i..].starts_with(b"*/") {
            (depth, i) = (depth - 1, i + 2);
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

/// For `r"`, `br##"` and the like: how long the opening is, and its hashes.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = [&b"br"[..], b"cr", b"r"].into_iter().find(|p| rest.starts_with(p))?.len();
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some((prefix + hashes + 1, hashes))
}

/// Where the closing quote of a string or character is.
fn quoted(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut i = from;
    while i < bytes.len() && bytes[i] != quote {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    i.min(bytes.len() - 1)
}

/// A character literal; or a lifetime, which is code.
fn character(bytes: &[u8], at: usize) -> (usize, Option<(usize, usize)>) {
    let rest = &bytes[at + 1..];
    let width = match rest.first() {
        None => return (at + 1, None),
        Some(b'\\') => {
            let end = quoted(bytes, at + 1, b'\'');
            return (end + 1, Some((at + 1, end)));
        }
        Some(b) if b.is_ascii() => 1,
        Some(b) if b >> 5 == 0b110 => 2,
        Some(b) if b >> 4 == 0b1110 => 3,
        Some(_) => 4,
    };
    match rest.get(width) {
        Some(b'\'') => (at + width + 2, Some((at + 1, at + 1 + width))),
        _ => (at + 1, None),
    }
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes[from..].windows(what.len()).position(|w| w == what).map(|i| from + i)
}

/// Whether a byte can be part of an identifier.
pub const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where `word` is a whole word, not part of a longer identifier.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(i, _)| i).filter(move |&i| {
        let before = i == 0 || !is_word(bytes[i - 1]) || !is_word(word.as_bytes()[0]);
        let end = i + word.len();
        let last = word.as_bytes()[word.len() - 1];
        before && (end >= bytes.len() || !is_word(bytes[end]) || !is_word(last))
    })
}

/// The identifier that `text` begins with; may be empty.
pub fn identifier(text: &str) -> &str {
    let end = text.bytes().position(|b| !is_word(b)).unwrap_or(text.len());
    &text[..end]
}

/// The number of the line that holds the byte at `at`, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count()
}

/// Where the bracket that opens at `open` is closed, in masked text.
pub fn closing(masked: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (i, b) in masked.bytes().enumerate().skip(open) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// A function with a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function<'a> {
    /// Its name; empty where a macro gives it.
    pub name: &'a str,
    /// The text between its braces.
    pub body: &'a str,
    /// Where its `fn` is, in bytes.
    pub at: usize,
    /// The line of its `fn`.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

/// Every function with a body, in masked text.
pub fn functions(masked: &str) -> Vec<Function<'_>> {
    let named = words(masked, "fn").filter_map(|at| {
        let rest = masked[at + 2..].trim_start();
        let name = identifier(rest);
        // Without a name it is a type or a trait, unless a macro's parameter is the name.
        let _ = Some(rest).filter(|rest| !name.is_empty() || rest.starts_with('$'))?;
        let open = body(masked, at + 2)?;
        let end = closing(masked, open)?;
        let line = line_of(masked, at);
        let lines = line_of(masked, end) + 1 - line;
        Some(Function { name, body: &masked[open + 1..end], at, line, lines })
    });
    named.collect()
}

/// Where the body of a signature begins; none if there is only a signature.
fn body(masked: &str, from: usize) -> Option<usize> {
    let bytes = masked.as_bytes();
    let mut i = from;
    while i < bytes.len() {
        match bytes[i] {
            b'(' | b'[' => i = closing(masked, i)?,
            b'{' => return Some(i),
            b';' | b'}' => return None,
            _ => {}
        }
        i += 1;
    }
    None
}

/// The parts of a masked file that are compiled for tests only: items, fields and statements under `#[cfg(test)]`.
pub fn test_ranges(masked: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in masked.match_indices("#[cfg(") {
        let Some(end) = closing(masked, at + 1) else { continue };
        let condition = &masked[at..end];
        if words(condition, "test").next().is_none() || condition.contains("not(test") {
            continue;
        }
        found.push((at, attributed_end(masked, end)));
    }
    found
}

/// Where a thing ends whose attributes are before `from`: an item with its body or at its semicolon, a field or a value at its
/// comma, too, or with the list that it is the last of.
fn attributed_end(masked: &str, from: usize) -> usize {
    const ITEMS: [&str; 13] = [
        "fn", "mod", "use", "impl", "struct", "enum", "union", "trait", "type", "const", "static",
        "unsafe", "extern",
    ];
    let mut i = from;
    let mut first = None;
    let mut open = 0usize;
    while i < masked.len() {
        match masked.as_bytes()[i] {
            b'(' | b'[' => i = closing(masked, i).unwrap_or(masked.len()),
            b'{' => return closing(masked, i).unwrap_or(masked.len()),
            b';' => return i,
            b',' if open == 0 && !first.is_some_and(|word| ITEMS.contains(&word)) => return i,
            b'}' => return i,
            b'<' => open += 1,
            b'>' if !masked[..i].ends_with('-') => open = open.saturating_sub(1),
            c if first.is_none() && c.is_ascii_alphabetic() => {
                let word = identifier(&masked[i..]);
                first = (word != "pub").then_some(word);
                i += word.len() - 1;
            }
            _ => {}
        }
        i += 1;
    }
    masked.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_code_is_blanked_and_keeps_its_place() {
        let text = "let a = \"x\\\"{\"; // {\nlet b = r#\"{\"}\"#; /* { /* } */ */ 'c'; &'a {}";
        let masked = mask(text);
        assert_eq!(masked.len(), text.len());
        assert_eq!(masked.matches('{').count(), 1, "{masked}");
        assert_eq!(masked.lines().count(), 2);
        assert!(masked.contains("&'a {}"));
        assert_eq!(mask("b'\\'' '{' 'é' x"), "b'  ' ' ' '  ' x");
    }

    #[test]
    fn functions_are_measured_with_their_signature() {
        let text = "fn a();\nfn b(x: [u8; 3]) -> u8\nwhere\n{\n  if true { 1 } else { 2 }\n}\n";
        let masked = mask(text);
        let [b] = functions(&masked)[..] else { panic!("{:?}", functions(&masked)) };
        assert_eq!((b.name, b.line, b.lines), ("b", 2, 5));
        assert_eq!((b.at, b.body.trim()), (8, "if true { 1 } else { 2 }"));
        assert!(functions("let f: fn(u8) -> u8 = g;").is_empty());
    }

    #[test]
    fn words_are_not_parts_of_words() {
        assert_eq!(words("unsafe_code unsafe my_unsafe", "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(words("a::b b::a", "::a").count(), 1);
    }

    #[test]
    fn items_for_tests_are_found() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}\n\
                    #[cfg(not(test))]\nfn d() {}\n#[cfg(test)]\nmod more;\n";
        let masked = mask(text);
        let ranges = test_ranges(&masked);
        let within = |what: &str| {
            let at = masked.find(what).expect("it is there");
            ranges.iter().any(|&(from, to)| from <= at && at <= to)
        };
        assert!(within("fn b") && within("mod more"));
        assert!(!within("fn a") && !within("fn c") && !within("fn d"));
    }

    #[test]
    fn a_field_for_tests_ends_at_its_comma_or_with_its_struct() {
        let text = "struct A {\n #[cfg(test)]\n pub(super) steps: Map<u8, Vec<u8>>,\n a: u8,\n \
                    #[cfg(test)]\n last: u8\n}\nimpl A { fn b() {} }\n\
                    #[cfg(test)]\n#[inline]\npub fn c<T>(t: T) -> u8 where T: D, u8: E { f() }\n";
        let ranges = test_ranges(text);
        let within = |what: &str| {
            let at = text.find(what).expect("it is there");
            ranges.iter().any(|&(from, to)| from <= at && at <= to)
        };
        assert!(
            within("steps") && within("Vec") && within("last") && within("fn c") && within("f()")
        );
        assert!(!within("a: u8") && !within("impl A") && !within("fn b"));
    }
}
