//! A seeded random generator: the same seed and name give the same sequence.

/// A SplitMix64 generator.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator whose sequence depends on the seed and the name.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let named = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed ^ named)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound - 1`. `bound` must be greater than 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    /// True with a probability of `percent` percent.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A clone of a random element of the list.
    pub(crate) fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        self.one(list).clone()
    }

    /// A random element of the list.
    pub(crate) fn one<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// The text with one small change: a character is removed, doubled, swapped with its neighbor
    /// or changed in case, the text is cut after it, or an entry of `alphabet` replaces it or is
    /// inserted before it.
    pub(crate) fn mutate(&mut self, text: &str, alphabet: &[&str]) -> String {
        let mut pieces: Vec<String> = text.chars().map(String::from).collect();
        let insert = self.pick(alphabet).to_owned();
        if pieces.is_empty() {
            return insert;
        }
        let at = self.below(pieces.len());
        match self.below(7) {
            0 => drop(pieces.remove(at)),
            1 => pieces.insert(at, pieces[at].clone()),
            2 if at + 1 < pieces.len() => pieces.swap(at, at + 1),
            3 => {
                let other = if pieces[at].chars().all(char::is_uppercase) {
                    pieces[at].to_lowercase()
                } else {
                    pieces[at].to_uppercase()
                };
                pieces[at] = other;
            }
            4 => pieces[at] = insert,
            5 => pieces.truncate(at + 1),
            _ => pieces.insert(at, insert),
        }
        pieces.concat()
    }
}
