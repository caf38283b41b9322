//! Lowers the part trees of a rendered template, in which secrets are names, to flat lists of texts
//! and handles. The host applies the operations on secrets.

use tollgate_provider::{Encoding, Error};
use tollgate_template::{Operation, Part};

/// A piece of a header, query or body. Secrets are indices into the [`SecretStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Secret(usize, Encoding),
}

/// Holds the handles of secrets. Methods return the index of a secret.
pub(crate) trait SecretStore {
    /// The secret called `name`.
    fn named(&mut self, name: &str) -> Result<usize, Error>;

    /// The joined pieces, encoded as a whole.
    fn compose(&mut self, pieces: &[Piece], encoding: Encoding) -> Result<usize, Error>;

    /// The secret without white space at both ends.
    fn trim(&mut self, secret: usize) -> Result<usize, Error>;
}

/// Flattens `parts`, and composes secrets only where the tree requires it.
pub(crate) fn lower(parts: Vec<Part>, store: &mut dyn SecretStore) -> Result<Vec<Piece>, Error> {
    parts.into_iter().map(|part| lower_one(part, store)).collect()
}

fn lower_one(part: Part, store: &mut dyn SecretStore) -> Result<Piece, Error> {
    match part {
        Part::Text(text) => Ok(Piece::Text(text)),
        Part::Secret(name) => Ok(Piece::Secret(store.named(&name)?, Encoding::Raw)),
        Part::Applied { operation, parts } => {
            let joined = join(lower(parts, store)?, store)?;
            match encoding(operation) {
                Some(encoding) => Ok(Piece::Secret(joined, encoding)),
                None => Ok(Piece::Secret(store.trim(joined)?, Encoding::Raw)),
            }
        }
    }
}

/// Joins the pieces to one secret, with their encodings applied.
fn join(pieces: Vec<Piece>, store: &mut dyn SecretStore) -> Result<usize, Error> {
    match pieces.as_slice() {
        [Piece::Secret(secret, Encoding::Raw)] => Ok(*secret),
        pieces => store.compose(pieces, Encoding::Raw),
    }
}

/// The host's encoding. `None` for `trim`, which is a separate call.
fn encoding(operation: Operation) -> Option<Encoding> {
    match operation {
        Operation::Form => Some(Encoding::Form),
        Operation::Percent => Some(Encoding::Percent),
        Operation::Json => Some(Encoding::Json),
        Operation::Base64 => Some(Encoding::Base64),
        Operation::Trim => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the calls it gets.
    #[derive(Default)]
    struct Recorder(Vec<String>);

    impl Recorder {
        fn record(&mut self, text: String) -> Result<usize, Error> {
            self.0.push(text);
            Ok(self.0.len() - 1)
        }
    }

    impl SecretStore for Recorder {
        fn named(&mut self, name: &str) -> Result<usize, Error> {
            self.record(format!("get {name}"))
        }

        fn compose(&mut self, pieces: &[Piece], encoding: Encoding) -> Result<usize, Error> {
            self.record(format!("compose {pieces:?} {encoding:?}"))
        }

        fn trim(&mut self, secret: usize) -> Result<usize, Error> {
            self.record(format!("trim {secret}"))
        }
    }

    fn applied(operation: Operation, parts: Vec<Part>) -> Part {
        Part::Applied { operation, parts }
    }

    fn check(part: Part, calls: &[&str], expected: Piece) {
        let mut recorder = Recorder::default();
        assert_eq!(lower(vec![part], &mut recorder), Ok(vec![expected]));
        assert_eq!(recorder.0, calls);
    }

    #[test]
    fn one_encoding_of_one_secret_needs_no_composition() {
        let secret = || Part::Secret("s".into());
        check(Part::Text("x".into()), &[], Piece::Text("x".into()));
        check(secret(), &["get s"], Piece::Secret(0, Encoding::Raw));
        check(
            applied(Operation::Form, vec![secret()]),
            &["get s"],
            Piece::Secret(0, Encoding::Form),
        );
    }

    #[test]
    fn joined_and_nested_parts_are_composed() {
        let pair = vec![Part::Text("id:".into()), Part::Secret("s".into())];
        check(
            applied(Operation::Form, vec![applied(Operation::Base64, pair)]),
            &[
                "get s",
                "compose [Text(\"id:\"), Secret(0, Encoding::Raw)] Encoding::Raw",
                "compose [Secret(1, Encoding::Base64)] Encoding::Raw",
            ],
            Piece::Secret(2, Encoding::Form),
        );
        check(
            applied(
                Operation::Json,
                vec![applied(Operation::Trim, vec![Part::Secret("s".into())])],
            ),
            &["get s", "trim 0"],
            Piece::Secret(1, Encoding::Json),
        );
    }
}
