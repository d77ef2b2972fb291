//! Text that can be compressed as text can: words of random letters, which come again and again.

use laneway_load::random::Random;

/// Different words.
const WORDS: u64 = 1024;
/// Letters of a word, and which there are, the more often the more common they are.
const LETTERS_MAX: u64 = 10;
const LETTERS: &[u8] = b"eeeeeeetttttaaaaaooooiiiinnnnsssshhhrrrddlluuccmmffyywwggppbbvk";

/// So many bytes of it, and a few more.
pub fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::stream(seed, u64::from_le_bytes(*b"text    "));
    let mut letter = || LETTERS[random.below(LETTERS.len() as u64) as usize];
    let mut words: Vec<Vec<u8>> = Vec::new();
    for number in 0..WORDS {
        // Of all lengths, and the common ones, which come first, shorter.
        let letters = 1 + (number % LETTERS_MAX).min(1 + number / LETTERS_MAX);
        words.push((0..letters).map(|_| letter()).collect());
    }
    let mut text: Vec<u8> = Vec::with_capacity(bytes + LETTERS_MAX as usize + 2);
    while text.len() < bytes {
        let word = random.below(WORDS).min(random.below(WORDS));
        text.extend_from_slice(&words[word as usize]);
        let between: &[u8] = match random.below(12) {
            0 => b". ",
            1 => b", ",
            _ => b" ",
        };
        text.extend_from_slice(between);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_text_is_words_that_come_again() {
        const BYTES: usize = 64 << 10;
        let text = &text(4, BYTES)[..BYTES];
        let is_of_text = |byte: &u8| byte.is_ascii_lowercase() || b" .,".contains(byte);
        assert!(text.iter().all(is_of_text));
        // What a compressor looks for: four bytes that were there before.
        let fours: HashSet<&[u8]> = text.windows(4).collect();
        assert!(fours.len() < BYTES / 2);
    }
}
