//! Logins of the command line that a person approves in a browser: the code of RFC 6749 or the device
//! code of RFC 8628.
//!
//! Security: only hashes of the codes are stored, and each code makes one login at most.

use jiff::Timestamp;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::change::{Change, Limit};
use crate::database::Purpose;
use crate::query::{SelectQuery, Statement, invalid_column, read, time, uuid};
use crate::{Error, SecretHash, Store, bounds};
use tollgate_core::address::client_network;

const SELECT: &str = "SELECT id, challenge, client, address, login, state, created_at, expires_at FROM login_requests";

/// Expired requests that each new one deletes, at most: more than come in.
const EXPIRED_ROWS: i64 = 100;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum LoginRequestState {
    /// Nobody has answered it yet.
    Pending,
    /// The person of [`LoginRequest::login`] approved it.
    Approved,
    /// Somebody refused it.
    Denied,
}

/// A login of the command line that is not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// Its id.
    pub id: Uuid,
    /// PKCE challenge (S256) of the client; `None` for a device.
    pub challenge: Option<String>,
    /// The name that the client gives itself.
    pub client: String,
    /// The address that it came from.
    pub address: String,
    /// The login of the person who approved it.
    pub login: Option<Uuid>,
    /// What became of it.
    pub state: LoginRequestState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl Store {
    /// Adds a request.
    ///
    /// - `code`: hash of the code for the client. `user_code`: hash of the one that a person types.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if too many wait already, [`Error::Exists`], [`Error::TooLong`],
    /// [`Error::Character`].
    pub async fn create_login_request(
        &self,
        request: &LoginRequest,
        code: SecretHash,
        user_code: Option<SecretHash>,
    ) -> Result<(), Error> {
        bounds::check("client", &request.client, bounds::CLIENT_NAME)?;
        bounds::check(
            "challenge",
            request.challenge.as_deref().unwrap_or_default(),
            bounds::CLIENT_NAME,
        )?;
        let network = match request.address.parse() {
            Ok(address) => client_network(address).to_string(),
            Err(_) => request.address.clone(),
        };
        let now = request.created_at;
        // SECURITY: what strangers ask for never counts against people who are signed in. What has expired
        // counts for nothing, whenever it is deleted.
        let limits = match request.login {
            Some(login) => vec![Limit {
                count: Statement::new(
                    "SELECT COUNT(*) FROM login_requests WHERE login = $1 AND state = 'approved' \
                     AND user_code IS NULL AND expires_at > $2",
                    [login.into(), now.into()],
                ),
                owner: format!("login requests {login}"),
                allowed: bounds::APPROVED_CODES,
            }],
            None => {
                let (all, of_network) = bounds::DEVICE_CODES;
                let limit = |count, allowed| Limit {
                    count,
                    // Both limits have one owner: the total is over all networks, so each creation waits for every
                    // other.
                    owner: "login requests".to_owned(),
                    allowed,
                };
                let here = Statement::new(
                    "SELECT COUNT(*) FROM login_requests WHERE network = $1 AND login IS NULL AND expires_at > $2",
                    [network.as_str().into(), now.into()],
                );
                let total = Statement::new(
                    "SELECT COUNT(*) FROM login_requests WHERE login IS NULL AND expires_at > $1",
                    [now.into()],
                );
                vec![limit(here, of_network), limit(total, all)]
            }
        };
        let expired = Statement::new(
            "DELETE FROM login_requests WHERE id IN \
             (SELECT id FROM login_requests WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
            [now.into(), EXPIRED_ROWS.into()],
        );
        let insert = Statement::new(
            "INSERT INTO login_requests (id, code, user_code, challenge, client, address, login, state, created_at, \
             expires_at, network) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            [
                request.id.into(),
                code.into(),
                user_code.into(),
                request.challenge.clone().into(),
                request.client.as_str().into(),
                request.address.as_str().into(),
                request.login.into(),
                request.state.as_ref().into(),
                request.created_at.into(),
                request.expires_at.into(),
                network.as_str().into(),
            ],
        );
        let creation = Change::Creation {
            what: "login request",
            expired: Some(expired),
            insert,
            limits,
            event: None,
        };
        self.writer.change(creation).await.map(drop)
    }

    /// Returns the request with this code of a client.
    pub async fn login_request(&self, code: SecretHash) -> Result<Option<LoginRequest>, Error> {
        self.one_request(SelectQuery::new(SELECT).and("code =", Some(code)))
            .await
    }

    /// Returns the request with this code that a person typed.
    pub async fn login_request_of_user(&self, user_code: SecretHash) -> Result<Option<LoginRequest>, Error> {
        self.one_request(SelectQuery::new(SELECT).and("user_code =", Some(user_code)))
            .await
    }

    /// Answers a pending request. Returns whether it was still pending.
    ///
    /// - `login`: the login of the person who approves it; `None` refuses it.
    pub async fn answer_login_request(&self, id: Uuid, login: Option<Uuid>, now: Timestamp) -> Result<bool, Error> {
        let rows = match login {
            Some(login) => {
                let sql = "UPDATE login_requests SET state = 'approved', login = $2 \
                           WHERE id = $1 AND state = 'pending' AND expires_at > $3";
                self.execute(sql, [id.into(), login.into(), now.into()]).await?
            }
            None => {
                let sql = "UPDATE login_requests SET state = 'denied' \
                           WHERE id = $1 AND state = 'pending' AND expires_at > $2";
                self.execute(sql, [id.into(), now.into()]).await?
            }
        };
        Ok(rows > 0)
    }

    /// Takes an approved request away, so that it makes a login only once. Returns whether it was
    /// there.
    pub async fn take_login_request(&self, id: Uuid) -> Result<bool, Error> {
        let sql = "DELETE FROM login_requests WHERE id = $1 AND state = 'approved'";
        Ok(self.execute(sql, [id.into()]).await? > 0)
    }

    async fn one_request(&self, query: SelectQuery) -> Result<Option<LoginRequest>, Error> {
        let rows = query.fetch(&self.database, Purpose::Lookup, "id", 1).await?;
        let request = |row: &AnyRow| {
            let state: String = read(row, "state")?;
            let login: Option<Vec<u8>> = read(row, "login")?;
            let login = login.map(|bytes| Uuid::from_slice(&bytes).map_err(|_| invalid_column("login")));
            Ok(LoginRequest {
                id: uuid(row, "id")?,
                challenge: read(row, "challenge")?,
                client: read(row, "client")?,
                address: read(row, "address")?,
                login: login.transpose()?,
                state: state.parse().map_err(|_| invalid_column("state"))?,
                created_at: time(row, "created_at")?,
                expires_at: time(row, "expires_at")?,
            })
        };
        rows.first().map(request).transpose()
    }
}
