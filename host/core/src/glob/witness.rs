//! Finds example texts that a pattern matches, or that two patterns both match.

use super::Pattern;
use super::parse::{self, Class, Node};

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

fn sample_char(class: &Class) -> char {
    (FILLER..='\u{ff}')
        .chain('!'..=FILLER)
        .chain(class.listed_chars())
        .find(|c| class.contains(*c))
        .unwrap_or(FILLER)
}

/// A pattern as a nondeterministic finite automaton whose transitions consume single characters.
pub(super) struct Nfa {
    states: Vec<Transition>,
    alphabet: Vec<char>,
}

enum Transition {
    Char(char),
    One,
    Class(Class),
    Loop,
    Fork(Vec<usize>),
    Accept,
}

impl Nfa {
    pub(super) fn new(pattern: &Pattern) -> Option<Self> {
        let nodes = parse::parse(&pattern.source, false).ok()?;
        let mut nfa = Self {
            states: Vec::new(),
            alphabet: Vec::new(),
        };
        nfa.emit(&nodes);
        nfa.states.push(Transition::Accept);
        Some(nfa)
    }

    fn emit(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Text(text) => {
                    self.alphabet.extend(text.chars());
                    self.states.extend(text.chars().map(Transition::Char));
                }
                Node::Any | Node::Super => self.states.push(Transition::Loop),
                Node::Single => self.states.push(Transition::One),
                Node::Class(class) => {
                    self.alphabet.push(sample_char(class));
                    self.alphabet.extend(class.listed_chars());
                    self.states.push(Transition::Class(class.clone()));
                }
                Node::AnyOf(alternatives) => {
                    let fork = self.states.len();
                    self.states.push(Transition::Fork(Vec::new()));
                    let (mut starts, mut ends) = (Vec::new(), Vec::new());
                    for alternative in alternatives {
                        starts.push(self.states.len());
                        self.emit(alternative);
                        ends.push(self.states.len());
                        self.states.push(Transition::Fork(Vec::new()));
                    }
                    let after = self.states.len();
                    for (at, targets) in ends.into_iter().map(|end| (end, vec![after])).chain([(fork, starts)]) {
                        if let Some(state) = self.states.get_mut(at) {
                            *state = Transition::Fork(targets);
                        }
                    }
                }
            }
        }
    }

    /// The states reached from a state without consuming a character.
    pub(super) fn epsilon_closure(&self, from: usize) -> Vec<usize> {
        let (mut closure, mut pending, mut seen) = (Vec::new(), vec![from], std::collections::HashSet::new());
        while let Some(at) = pending.pop() {
            if !seen.insert(at) {
                continue;
            }
            match self.states.get(at) {
                Some(Transition::Fork(targets)) => pending.extend(targets),
                Some(Transition::Loop) => {
                    closure.push(at);
                    pending.push(at + 1);
                }
                Some(_) => closure.push(at),
                None => {}
            }
        }
        closure
    }

    pub(super) fn step(&self, at: usize, c: char) -> Vec<usize> {
        match self.states.get(at) {
            Some(Transition::Char(wanted)) if *wanted == c => self.epsilon_closure(at + 1),
            Some(Transition::One) => self.epsilon_closure(at + 1),
            Some(Transition::Class(class)) if class.contains(c) => self.epsilon_closure(at + 1),
            Some(Transition::Loop) => self.epsilon_closure(at),
            _ => Vec::new(),
        }
    }

    pub(super) fn accepts(&self, at: usize) -> bool {
        matches!(self.states.get(at), Some(Transition::Accept))
    }

    /// The characters that occur in the pattern.
    pub(super) fn alphabet(&self) -> &[char] {
        &self.alphabet
    }

    /// The shortest text that both automata accept.
    fn shortest_common_text(&self, other: &Self) -> Option<String> {
        let mut alphabet: Vec<char> = self
            .alphabet
            .iter()
            .chain(&other.alphabet)
            .copied()
            .chain([FILLER])
            .collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let mut seen = std::collections::HashSet::new();
        let mut queue = std::collections::VecDeque::new();
        for one in self.epsilon_closure(0) {
            queue.extend(
                other
                    .epsilon_closure(0)
                    .into_iter()
                    .map(|two| (one, two, String::new())),
            );
        }
        let mut steps = 0;
        while let Some((one, two, text)) = queue.pop_front() {
            if self.accepts(one) && other.accepts(two) {
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
                for next_one in self.step(one, *c) {
                    for next_two in other.step(two, *c) {
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
