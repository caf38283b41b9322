//! Matchers for patterns that are more than a prefix or a suffix.
//!
//! Invariant: matching takes at most text length times pattern length, backtracks only to the last
//! star, does not recurse, and allocates nothing once a thread has run its first match.

use std::cell::RefCell;

use super::parse::{Class, Node};

/// A matcher for patterns without groups and separators: greedy, with one point to backtrack to.
#[derive(Clone)]
pub(super) struct Sequence(Box<[Step]>);

#[derive(Clone)]
enum Step {
    Text(Box<str>),
    One,
    Class(Class),
    Star,
}

impl Step {
    /// The position after this step if it matches at `at`.
    fn eat(&self, text: &str, at: usize) -> Option<usize> {
        let rest = text.get(at..)?;
        let first = || rest.chars().next();
        let eaten = match self {
            Self::Text(literal) => return rest.starts_with(&**literal).then_some(at + literal.len()),
            Self::Star => return Some(at),
            Self::One => first(),
            Self::Class(class) => first().filter(|c| class.contains(*c)),
        };
        eaten.map(|c| at + c.len_utf8())
    }
}

impl Sequence {
    /// `None` when the pattern needs a [`Program`].
    pub(super) fn new(nodes: &[Node], separators: &[char]) -> Option<Self> {
        if !separators.is_empty() {
            return None;
        }
        let step = |node: &Node| match node {
            Node::Text(text) => Some(Step::Text(text.as_str().into())),
            Node::Any | Node::Super => Some(Step::Star),
            Node::Single => Some(Step::One),
            Node::Class(class) => Some(Step::Class(class.clone())),
            Node::AnyOf(_) => None,
        };
        Some(Self(nodes.iter().map(step).collect::<Option<_>>()?))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let (mut step, mut at) = (0, 0);
        // The step after the last star, and where that star's text ends so far.
        let mut star: Option<(usize, usize)> = None;
        loop {
            let eaten = match self.0.get(step) {
                None if at == text.len() => return true,
                None => None,
                Some(Step::Star) => {
                    star = Some((step + 1, at));
                    Some(at)
                }
                Some(other) => other.eat(text, at),
            };
            if let Some(next) = eaten {
                (step, at) = (step + 1, next);
                continue;
            }
            // To widen the last star is enough: what an earlier one reaches by taking more, the last one reaches, too.
            let Some((after, end)) = star else { return false };
            let Some(next) = self.widen(after, end, text) else {
                return false;
            };
            star = Some((after, next));
            (step, at) = (after, next);
        }
    }

    /// The next position after `end` where the step after a star can start.
    fn widen(&self, after: usize, end: usize, text: &str) -> Option<usize> {
        let rest = text.get(end..)?;
        let one = end + rest.chars().next()?.len_utf8();
        match self.0.get(after) {
            // Linear search: the star matches everything before the hit.
            Some(Step::Text(literal)) => text.get(one..)?.find(&**literal).map(|found| one + found),
            // A trailing star matches everything, so it is never widened.
            None | Some(Step::One | Step::Class(_) | Step::Star) => Some(one),
        }
    }
}

/// A matcher for any pattern: an automaton that is in several states at once.
#[derive(Clone)]
pub(super) struct Program {
    states: Box<[State]>,
    separators: Box<[char]>,
}

#[derive(Clone)]
enum State {
    Char(char),
    One,
    Class(Class),
    /// Consumes any character (`crossing`: separators too) and stays in this state.
    Loop {
        crossing: bool,
    },
    /// Continues in each of these without consuming a character.
    Fork(Box<[u32]>),
    Accept,
}

/// The states reached in one step; the memory is kept from match to match.
#[derive(Default)]
struct Scratch {
    current: Vec<u32>,
    next: Vec<u32>,
    pending: Vec<u32>,
    seen: Vec<u64>,
    round: u64,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Program {
    pub(super) fn new(nodes: &[Node], separators: &[char]) -> Self {
        let mut states = Vec::new();
        emit(nodes, &mut states);
        states.push(State::Accept);
        Self {
            states: states.into(),
            separators: separators.into(),
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => self.run(text, &mut scratch),
            // Not expected, as a match does not start another one. Memory is cheaper than a panic in a decision.
            Err(_) => self.run(text, &mut Scratch::default()),
        })
    }

    fn run(&self, text: &str, scratch: &mut Scratch) -> bool {
        // Marks of other patterns need not be erased: they are numbers of earlier rounds. Hence it never shrinks,
        // either.
        scratch.seen.resize(self.states.len().max(scratch.seen.len()), 0);
        // Another pattern's states may be left over from the previous match.
        scratch.next.clear();
        scratch.round += 1;
        self.enter(0, scratch);
        std::mem::swap(&mut scratch.current, &mut scratch.next);
        for c in text.chars() {
            scratch.next.clear();
            scratch.round += 1;
            let separator = self.separators.contains(&c);
            // By index, because `enter` borrows all of `scratch`.
            for index in 0..scratch.current.len() {
                let Some(&id) = scratch.current.get(index) else { break };
                if let Some(next) = self.next(id, c, separator) {
                    self.enter(next, scratch);
                }
            }
            std::mem::swap(&mut scratch.current, &mut scratch.next);
            if scratch.current.is_empty() {
                return false;
            }
        }
        scratch.current.iter().any(|&id| self.accepts(id))
    }

    pub(super) fn accepts(&self, id: u32) -> bool {
        matches!(self.states.get(id as usize), Some(State::Accept))
    }

    /// The state to enter after state `id` has consumed the character, if it can.
    fn next(&self, id: u32, c: char, is_separator: bool) -> Option<u32> {
        match self.states.get(id as usize)? {
            State::Char(wanted) => (*wanted == c).then_some(id + 1),
            State::One => (!is_separator).then_some(id + 1),
            State::Class(class) => class.contains(c).then_some(id + 1),
            State::Loop { crossing } => (*crossing || !is_separator).then_some(id),
            State::Fork(_) | State::Accept => None,
        }
    }

    /// The states reached from a state without consuming a character.
    pub(super) fn epsilon_closure(&self, from: u32) -> Vec<u32> {
        let mut scratch = Scratch {
            seen: vec![0; self.states.len()],
            round: 1,
            ..Scratch::default()
        };
        self.enter(from, &mut scratch);
        scratch.next
    }

    /// The states reached from a state by a character that is no separator.
    pub(super) fn step(&self, at: u32, c: char) -> Vec<u32> {
        self.next(at, c, false)
            .map(|next| self.epsilon_closure(next))
            .unwrap_or_default()
    }

    /// Adds a state, and every state reached from it without a character, to `next`.
    fn enter(&self, id: u32, scratch: &mut Scratch) {
        let Scratch {
            next,
            pending,
            seen,
            round,
            ..
        } = scratch;
        pending.push(id);
        while let Some(id) = pending.pop() {
            match seen.get_mut(id as usize) {
                Some(mark) if *mark != *round => *mark = *round,
                _ => continue,
            }
            match self.states.get(id as usize) {
                Some(State::Fork(targets)) => pending.extend(targets.iter()),
                Some(State::Loop { .. }) => {
                    next.push(id);
                    pending.push(id + 1);
                }
                Some(State::Char(_) | State::One | State::Class(_) | State::Accept) => next.push(id),
                None => {}
            }
        }
    }
}

/// Builds the states of `nodes`; they end by falling through to the state after them. The recursion
/// is as deep as groups nest, which the parser bounds.
fn emit(nodes: &[Node], states: &mut Vec<State>) {
    for node in nodes {
        match node {
            Node::Text(text) => states.extend(text.chars().map(State::Char)),
            Node::Any => states.push(State::Loop { crossing: false }),
            Node::Super => states.push(State::Loop { crossing: true }),
            Node::Single => states.push(State::One),
            Node::Class(class) => states.push(State::Class(class.clone())),
            Node::AnyOf(alternatives) => emit_group(alternatives, states),
        }
    }
}

fn emit_group(alternatives: &[Vec<Node>], states: &mut Vec<State>) {
    let fork = states.len();
    // Where the alternatives begin is known only after they are emitted. Likewise their ends below.
    states.push(State::Fork(Box::default()));
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for alternative in alternatives {
        starts.push(number(states.len()));
        emit(alternative, states);
        ends.push(states.len());
        states.push(State::Fork(Box::default()));
    }
    let after = number(states.len());
    if let Some(state) = states.get_mut(fork) {
        *state = State::Fork(starts.into());
    }
    for end in ends {
        if let Some(state) = states.get_mut(end) {
            *state = State::Fork([after].into());
        }
    }
}

/// Patterns are bounded, so their states always fit.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
