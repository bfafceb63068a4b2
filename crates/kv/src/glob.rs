//! Redis's glob patterns.

/// Steps that comparing with `pattern` takes for each byte of a text, at most: behind a star, the
/// pattern up to the next star may be compared anew from each byte on.
pub(crate) fn steps(pattern: &[u8]) -> u64 {
    let behind_stars = pattern.split(|byte| *byte == b'*').skip(1);
    1 + behind_stars.map(<[u8]>::len).max().unwrap_or(0) as u64
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
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let inverted = pattern.get(p) == Some(&b'^');
    p += usize::from(inverted);
    let mut hit = false;
    loop {
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
    (hit != inverted).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::matches;

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
