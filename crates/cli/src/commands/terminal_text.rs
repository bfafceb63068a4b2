//! Texts that others wrote, without what a terminal would obey.

use std::borrow::Cow;
use std::fmt::Display;

/// The text, with what a terminal would obey as `\x1b` or `\u{9b}`. Lines and tabs stay.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let text = escaped(text, |c| c == '\n' || c == '\t' || c == '\r');
    if !text.contains('\r') {
        return text;
    }
    // A carriage return belongs to the end of a line, and elsewhere has what follows written over the line.
    let lines = text.split("\r\n").map(|line| line.replace('\r', "\\x0d"));
    Cow::Owned(lines.collect::<Vec<_>>().join("\r\n"))
}

/// Characters of a line of an error: a file's line that is quoted may have any number.
const LINE_CHARS_MAX: usize = 2000;

/// An error as it is printed: harmless, and no line of it longer than a screen.
pub(super) fn error_text(text: &str) -> String {
    let text = harmless(text);
    let short = |line: &str| match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_string(),
    };
    text.split('\n').map(short).collect::<Vec<_>>().join("\n")
}

/// Prints a warning, harmless, in a line of its own.
pub(super) fn warn(text: impl Display) {
    eprintln!("amcast: warning: {}", error_text(&text.to_string()));
}

/// The text as one line, with the ends of lines in it as `\x0a`: nobody can have it look like several. Tabs stay.
pub(super) fn harmless_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\t')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !stays(c);
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars() {
        match u32::from(c) {
            code @ ..0x80 if obeyed(c) => shown.push_str(&format!("\\x{code:02x}")),
            _ if obeyed(c) => shown.extend(c.escape_unicode()),
            _ => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_and_not_obeyed() {
        assert!(matches!(harmless("naïve\tone\ntwo"), Cow::Borrowed("naïve\tone\ntwo")));
        let value = "\x1b]0;mine\x07\rè\u{9b}2J\x7f";
        assert_eq!(harmless(value), "\\x1b]0;mine\\x07\\x0dè\\u{9b}2J\\x7f");
        assert_eq!(harmless_line(value), harmless(value));
        assert_eq!(harmless("# Server\r\nversion:7\r\n"), "# Server\r\nversion:7\r\n");
    }

    #[test]
    fn an_error_that_quotes_a_file_is_readable() {
        let quoted = format!("TOML\n1 | \x1b]0;mine\x07\n2 | {}\n  | ^", "\0".repeat(1500));
        let shown = error_text(&quoted);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[..2], ["TOML", "1 | \\x1b]0;mine\\x07"]);
        assert!(lines[2].starts_with("2 | \\x00\\x00") && lines[2].len() == LINE_CHARS_MAX + 2);
        assert_eq!(lines[3], "  | ^");
    }

    #[test]
    fn one_line_looks_like_one() {
        assert_eq!(harmless_line("x\n7\tforged\r\n"), "x\\x0a7\tforged\\x0d\\x0a");
    }
}
