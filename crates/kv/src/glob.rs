//! Redis's glob patterns.

/// Steps that comparing with `pattern` takes for each byte of a text, at most: behind a star, the
/// pattern up to the next star may be compared anew from each byte on. A star within a class, or
/// behind a backslash, is none.
pub(crate) fn steps(pattern: &[u8]) -> u64 {
    let mut longest = 0;
    // The place behind the last star.
    let mut star = None;
    let mut p = 0;
    while p < pattern.len() {
        if pattern[p] == b'*' {
            p += 1;
            star = Some(p);
            continue;
        }
        p = element_end(pattern, p);
        longest = longest.max(star.map_or(0, |behind| p - behind));
    }
    1 + longest as u64
}

#[cfg(test)]
thread_local! {
    /// Steps that were taken.
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a byte of a pattern that is looked at, in tests.
fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// Whether `text` matches `pattern`: `*`, `?`, `[a-z]`, `[^..]` and `\` to escape. Takes time in
/// proportion to the product of the lengths at most.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The place to continue if the rest does not match: behind the last star, one byte later.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            if p == pattern.len() {
                return true;
            }
            retry = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        if t < text.len()
            && let Some(next) = one(pattern, p, text[t])
        {
            (p, t) = (next, t + 1);
            continue;
        }
        match retry {
            Some((star, from)) if from < text.len() => {
                retry = Some((star, from + 1));
                (p, t) = (star, from + 1);
            }
            _ => return false,
        }
    }
}

/// The next place in the pattern if its element at `p` matches `byte`.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    step();
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => {
            let class = Class::read(pattern, p + 1, byte);
            class.hit.then_some(class.end)
        }
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// The next place in the pattern behind its element at `p`, which is there and no star: where
/// [`one`] continues with a byte that matches.
fn element_end(pattern: &[u8], p: usize) -> usize {
    match pattern[p] {
        b'[' => Class::read(pattern, p + 1, 0).end,
        b'\\' if p + 1 < pattern.len() => p + 2,
        _ => p + 1,
    }
}

/// A class of bytes in a pattern, as one byte sees it.
struct Class {
    /// The place behind it, which depends on no byte.
    end: usize,
    /// Whether the byte is in it.
    hit: bool,
}

impl Class {
    /// The class whose first byte behind the bracket is at `p`; one that nothing closes goes to the pattern's end.
    fn read(pattern: &[u8], mut p: usize, byte: u8) -> Self {
        let inverted = pattern.get(p) == Some(&b'^');
        p += usize::from(inverted);
        let mut hit = false;
        loop {
            step();
            match pattern.get(p) {
                None => break,
                Some(b']') => {
                    p += 1;
                    break;
                }
                Some(b'\\') if p + 1 < pattern.len() => {
                    hit |= pattern[p + 1] == byte;
                    p += 2;
                }
                Some(&low) if pattern.get(p + 1) == Some(&b'-') && p + 2 < pattern.len() => {
                    let high = pattern[p + 2];
                    hit |= (low.min(high)..=low.max(high)).contains(&byte);
                    p += 3;
                }
                Some(&literal) => {
                    hit |= literal == byte;
                    p += 1;
                }
            }
        }
        Self { end: p, hit: hit != inverted }
    }
}

#[cfg(test)]
mod tests {
    use super::{STEPS, matches, steps};

    /// All texts of up to so many of these letters.
    fn texts(letters: &[u8], len_max: usize) -> Vec<Vec<u8>> {
        let (mut all, mut from) = (vec![Vec::new()], 0);
        for _ in 0..len_max {
            let end = all.len();
            for i in from..end {
                let longer = letters.iter().map(|l| [&all[i][..], &[*l]].concat());
                all.extend(longer.collect::<Vec<_>>());
            }
            from = end;
        }
        all
    }

    #[test]
    fn comparing_takes_no_more_steps_than_are_told() {
        let patterns = texts(b"*[]\\^-a", 6);
        let texts = [&b""[..], b"a", b"*", b"aaaa", b"****", b"a*a*a*a*", b"]]]]]]]]", b"[[*[[*a"];
        for pattern in patterns {
            for text in texts {
                // Before the count begins: reading the pattern takes steps, too.
                let most = (text.len() + 1) as u64 * steps(&pattern) + pattern.len() as u64;
                STEPS.set(0);
                matches(&pattern, text);
                let shown = [&pattern[..], text].map(String::from_utf8_lossy);
                assert!(STEPS.get() <= most, "{shown:?}: {} of {most}", STEPS.get());
            }
        }
    }

    #[test]
    fn only_the_pattern_up_to_the_next_star_is_compared_anew() {
        for (pattern, most) in [
            (&b""[..], 1),
            (b"abc", 1),
            (b"*", 1),
            (b"*abc", 4),
            (b"*a*bc*", 3),
            (b"*[***]z", 7),
            (b"*[^]*", 4),
            (b"[*]*a", 2),
            (b"*[\\]*]z", 7),
            (b"*\\*\\*z", 6),
            (b"\\*a", 1),
            (b"*\\", 2),
        ] {
            assert_eq!(steps(pattern), most, "{}", String::from_utf8_lossy(pattern));
        }
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("[", "x", false),
            ("key:*", "key:", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(!matches("a*".repeat(50).as_bytes(), "a".repeat(49).as_bytes()));
    }
}
