//! Targets as ordinary tests: seeds, earlier finds, and seeded mutations of both.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Target, checkout, targets};

/// Mutated inputs of each target in an ordinary test run.
const MUTATIONS: u64 = 1_500;

/// Longest mutated input, in bytes.
const MOST_BYTES: usize = 8 * 1024;

/// Bytes that mean something to one of the parsers.
const TOKENS: [&[u8]; 28] = [
    b"{{",
    b"}}",
    b"%2e",
    b"%2F",
    b"%00",
    b"\r\n",
    b"\n",
    b"..",
    b"//",
    b"*",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"\\",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"\xff",
    b"\xc3\xa9",
    b"\0",
    b",",
    b"=",
    b"|",
    b"$",
    b"-1",
];

/// The generator `SplitMix64` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators): few lines, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

/// One to four changes of an input: bytes flipped, cut, doubled, tokens put in, or the end
/// of another input.
fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 => drop(input.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
            2 => {
                let end = (at + random.below(16)).min(input.len());
                input.drain(at..end);
            }
            3 => {
                let end = (at + random.below(32)).min(input.len());
                let copied = input[at..end].to_vec();
                drop(input.splice(at..at, copied));
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            _ => input.insert(at, u8::try_from(random.below(256)).unwrap()),
        }
    }
    input.truncate(MOST_BYTES);
    input
}

/// What earlier runs found, one file an input: `tests/data/fuzz/<target>/`.
fn finds(target: &Target) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(checkout("tests/data/fuzz").join(target.name)) else {
        return Vec::new();
    };
    entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect()
}

fn holds(target: &Target, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    assert!(
        outcome.is_ok(),
        "target `{}` fails on {:?}",
        target.name,
        input.escape_ascii().to_string()
    );
}

#[test]
fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
    for target in targets() {
        let mut corpus = (target.seeds)();
        assert!(!corpus.is_empty(), "target `{}` has no seeds", target.name);
        corpus.extend(finds(&target));
        for input in &corpus {
            holds(&target, input);
        }
        let mut random = Random(13);
        for _ in 0..MUTATIONS {
            holds(&target, &mutate(&mut random, &corpus));
        }
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = targets().iter().map(|target| target.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Every folder of finds belongs to a target: a renamed target must not lose them.
#[test]
fn finds_belong_to_targets() {
    let Ok(folders) = std::fs::read_dir(checkout("tests/data/fuzz")) else {
        return;
    };
    for folder in folders {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(targets().iter().any(|target| target.name == name), "no target `{name}`");
    }
}
