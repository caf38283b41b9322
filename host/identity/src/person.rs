//! Whether two names are one person. A person has several: the subject and the user name that an issuer
//! gives, the claims that link them to the directory, and the user name there. Locks, sessions, logins and
//! the audit log ask here.
//!
//! Security: a number of the directory alone is no person, because it may be given to somebody else later.

use std::collections::HashSet;

use serde_json::{Map, Value};

use tollgate_config::{UserClaimMapping, UserLookupKey};
use tollgate_core::agent::AgentId;
use tollgate_core::claims::{EMAIL, is_email_usable};
use tollgate_core::user::User;
use tollgate_objects::people::{Person, UserDirectory};

/// The names of one person, as far as a credential tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonNames(Vec<Box<str>>);

impl PersonNames {
    /// The person of these names. Empty ones are none.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::default().and(names)
    }

    /// The same person, who has these names as well.
    #[must_use]
    pub fn and<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        for name in names {
            if !name.is_empty() && !self.has(name) {
                self.0.push(name.into());
            }
        }
        self
    }

    /// The same person, with the subject that claims give. An issuer's own claims are under `token` if it has
    /// claim mappings.
    #[must_use]
    pub fn and_subject(self, claims: &Map<String, Value>) -> Self {
        let own = claims.get("token").and_then(Value::as_object);
        let subjects = [Some(claims), own].into_iter().flatten();
        self.and(subjects.filter_map(|claims| claims.get("sub")?.as_str()))
    }

    /// Whether the person has this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|one| **one == *name)
    }

    /// Whether the person has one of these names.
    pub fn has_any(&self, names: &HashSet<String>) -> bool {
        !names.is_empty() && self.0.iter().any(|one| names.contains(&**one))
    }
}

/// Whether two entries of the directory are one person: number and user name are the same.
pub fn is_same_entry(one: &User, other: &User) -> bool {
    one.id == other.id && one.username == other.username
}

/// The person of the directory whom an issuer's claims stand for, found by the first of the issuer's links
/// that matches.
///
/// A number is an integer or text in canonical decimal. An `email` that the issuer says is not verified
/// matches nobody.
pub fn linked_person<'p>(
    people: &'p UserDirectory,
    links: &[UserClaimMapping],
    issuer: &str,
    claims: &Map<String, Value>,
) -> Option<&'p Person> {
    let mut links = links.iter().filter(|link| link.issuer == issuer);
    links.find_map(|link| {
        let claim = claims.get(&link.claim)?;
        // SECURITY: anyone who can sign up may enter somebody else's address.
        if link.claim == EMAIL && !is_email_usable(claims) {
            return None;
        }
        match link.key {
            UserLookupKey::Username => people.person_by_username(claim.as_str()?),
            UserLookupKey::Id => {
                // Numbers of agents have the same format.
                let read = |text: &str| AgentId::parse(text).map(AgentId::get);
                people.person(claim.as_i64().or_else(|| read(claim.as_str()?))?)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::{PersonNames, is_same_entry};
    use tollgate_core::user::User;

    #[test]
    fn each_name_of_a_person_is_theirs_and_no_other() {
        let claims = json!({"sub": "corp:ann", "token": {"sub": "u1-sub"}});
        let names = PersonNames::of(["ann@corp.example", "", "ann"]).and_subject(claims.as_object().unwrap());
        for name in ["ann@corp.example", "ann", "u1-sub", "corp:ann"] {
            assert!(names.has(name), "{name}");
            assert!(names.has_any(&HashSet::from([name.to_owned()])), "{name}");
        }
        for name in ["", "an", "ANN", "ann@corp.example ", "token"] {
            assert!(!names.has(name), "{name}");
        }
        assert!(!names.has_any(&HashSet::from(["bob".to_owned()])));
        assert!(!PersonNames::of([""]).has_any(&HashSet::from([String::new()])));
    }

    #[test]
    fn a_number_that_was_given_to_somebody_else_is_another_person() {
        let entry = |id, username: &str| User {
            id,
            username: username.to_owned(),
        };
        assert!(is_same_entry(&entry(101, "ann"), &entry(101, "ann")));
        assert!(!is_same_entry(&entry(101, "ann"), &entry(101, "bob")));
        assert!(!is_same_entry(&entry(101, "ann"), &entry(102, "ann")));
    }
}
