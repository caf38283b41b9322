//! Finds example texts that a pattern matches, or that two patterns both match.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::Pattern;
use super::parse::{self, Class, Node};
use super::program::Program;

/// Most combinations of characters and states that a search tries.
const SEARCH_LIMIT: usize = 200_000;
/// Stands for a character that occurs in no pattern.
const FILLER: char = 'x';

impl Pattern {
    /// Texts that match: the shortest, and the shortest in which every star matches something. Only
    /// for patterns without separators.
    pub fn witnesses(&self) -> Vec<String> {
        let Ok(nodes) = parse::parse(&self.source, false) else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        for star in ["", "x", "x/y"] {
            let mut text = String::new();
            write(&nodes, star, &mut text);
            texts.push(text);
        }
        texts.extend(self.overlapped());
        // For a class, `write` may find no character that it contains.
        texts.retain(|text| self.matches(text));
        texts.dedup();
        texts
    }

    /// The shortest match of `prefix*suffix` whose texts overlap, if they can.
    fn overlapped(&self) -> Option<String> {
        let most = self.prefix.len().min(self.suffix.len());
        let shared = (1..=most).rev().find_map(|n| {
            let end = self.prefix.get(self.prefix.len() - n..)?;
            self.suffix.strip_prefix(end)
        })?;
        Some(format!("{}{shared}", self.prefix))
    }

    /// A text that both patterns match, if there is one. Exact for patterns without separators and
    /// overlaps whose product is within the search limit.
    pub fn common_witness(&self, other: &Self) -> Option<String> {
        // Examples first: the automata do not know texts that overlap.
        for (one, two) in [(self, other), (other, self)] {
            if let Some(text) = one.witnesses().into_iter().find(|text| two.matches(text)) {
                return Some(text);
            }
        }
        let (left, right) = (Nfa::new(self)?, Nfa::new(other)?);
        left.shortest_common_text(&right)
    }
}

fn write(nodes: &[Node], star: &str, text: &mut String) {
    for node in nodes {
        match node {
            Node::Text(literal) => text.push_str(literal),
            Node::Any | Node::Super => text.push_str(star),
            Node::Single => text.push(FILLER),
            Node::Class(class) => text.push(sample_char(class)),
            Node::AnyOf(alternatives) => {
                if let Some(first) = alternatives.first() {
                    write(first, star, text);
                }
            }
        }
    }
}

fn collect_chars(nodes: &[Node], chars: &mut Vec<char>) {
    for node in nodes {
        match node {
            Node::Text(text) => chars.extend(text.chars()),
            Node::Class(class) => {
                chars.push(sample_char(class));
                chars.extend(class.listed_chars());
            }
            Node::AnyOf(alternatives) => alternatives.iter().for_each(|one| collect_chars(one, chars)),
            Node::Any | Node::Super | Node::Single => {}
        }
    }
}

fn sample_char(class: &Class) -> char {
    (FILLER..='\u{ff}')
        .chain('!'..=FILLER)
        .chain(class.listed_chars())
        .find(|c| class.contains(*c))
        .unwrap_or(FILLER)
}

/// A pattern as a nondeterministic finite automaton, and the characters to try in it.
pub(super) struct Nfa {
    pub(super) program: Program,
    pub(super) alphabet: Vec<char>,
}

impl Nfa {
    pub(super) fn new(pattern: &Pattern) -> Option<Self> {
        let nodes = parse::parse(&pattern.source, false).ok()?;
        let mut alphabet = Vec::new();
        collect_chars(&nodes, &mut alphabet);
        Some(Self {
            program: Program::new(&nodes, &[]),
            alphabet,
        })
    }

    fn shortest_common_text(&self, other: &Self) -> Option<String> {
        let listed = self.alphabet.iter().chain(&other.alphabet).copied();
        let alphabet: BTreeSet<char> = listed.chain([FILLER]).collect();
        let mut seen = HashSet::new();
        let mut queue = VecDeque::new();
        for one in self.program.epsilon_closure(0) {
            let starts = other.program.epsilon_closure(0).into_iter();
            queue.extend(starts.map(|two| (one, two, String::new())));
        }
        let mut steps = 0;
        while let Some((one, two, text)) = queue.pop_front() {
            if self.program.accepts(one) && other.program.accepts(two) {
                return Some(text);
            }
            if !seen.insert((one, two)) {
                continue;
            }
            for c in &alphabet {
                steps += 1;
                if steps > SEARCH_LIMIT {
                    return None;
                }
                for next_one in self.program.step(one, *c) {
                    for next_two in other.program.step(two, *c) {
                        if !seen.contains(&(next_one, next_two)) {
                            let mut longer = text.clone();
                            longer.push(*c);
                            queue.push_back((next_one, next_two, longer));
                        }
                    }
                }
            }
        }
        None
    }
}
