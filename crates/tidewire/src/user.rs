//! `tidewire user`: manages the users of the record store while the server is stopped. While it runs, its admin API does the same, and
//! ends the sessions of a changed user.

use std::sync::Arc;

use serde_json::Value;
use tidewire_auth::hashing::Hashing;
use tidewire_auth::users::{Change, Counts, UserError, Users};
use tidewire_config::plan::Plan;
use tidewire_config::section::StoreKind;
use tidewire_store::folder::{DataFolder, FolderError};
use tidewire_store::remote::OpenStore;
use tidewire_store::thread::{Ending, StoreThreads};

use crate::cli::UserCommand;
use crate::terminal::{print_out, read_password};
use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::open_store;

/// A command with its password from standard input and its parsed JSON.
enum Work {
    List,
    Add(String, Change),
    SetPassword(String, Change),
    Remove(String),
}

/// Runs the command on the configured store.
///
/// # Errors
/// A server uses the store, the store can't be opened, or the change is not possible.
pub fn run(plan: &Plan, command: UserCommand) -> Result<Exit, Failure> {
    let work = read(command)?;
    let store = &plan.config.store;
    let instead = match store.kind {
        StoreKind::Sqlite => None,
        StoreKind::Memory => Some("a store in memory has users only while the server runs"),
        // No lock shows whether a server runs on another machine, and opening the store would take it away from that server.
        StoreKind::Mongodb => Some("a server on another machine may use the mongodb store"),
        StoreKind::Postgres => Some("a server on another machine may use the postgres store"),
        StoreKind::Redis => Some("a server on another machine may use the redis store"),
    };
    if let Some(reason) = instead {
        let line = format!("store.kind: {reason}; use the server's admin API (docs/admin-api.md)");
        return Err(Failure::new(Exit::Configuration, line));
    }
    // Only `add` may create the store.
    if !matches!(work, Work::Add(..)) && !store.path.exists() {
        let missing = FolderError::NoStore {
            path: store.path.clone(),
        };
        return Err(Failure::new(Exit::DataFolder, missing.to_string()));
    }
    let unavailable = |error: &dyn std::fmt::Display| {
        Failure::new(
            Exit::DataFolder,
            format!("the users can't be opened: {error}"),
        )
    };
    let folder = DataFolder::open(&store.path).map_err(|error| {
        let line = match error {
            FolderError::Locked { .. } => format!(
                "{error}; while the server runs, change its users by its admin API (docs/admin-api.md)"
            ),
            _ => error.to_string(),
        };
        Failure::new(Exit::DataFolder, line)
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| unavailable(&error))?;
    let OpenStore { store, opened, .. } = open_store(plan, None, &folder, runtime.handle())?;
    // No shard uses the store.
    let threads = StoreThreads::start(store, opened, Arc::new(|_, _| {}));
    let threads = threads.map_err(|error| unavailable(&error))?;
    let users = Users::new(&plan.config.auth.store, Hashing::new(1), Counts::default());
    users.open(threads.client());
    let outcome = runtime.block_on(work.run(&users)).map_err(refused);
    drop(users);
    let closed = threads.stop(Ending::Complete);
    let printed = outcome?;
    closed.map_err(|error| unavailable(&error))?;
    print_out(&printed)
}

/// Reads the password and the JSON of a command, before it opens the store.
fn read(command: UserCommand) -> Result<Work, Failure> {
    let password = |word: &str, name: &str| {
        let read = read_password(&format!("user {word} {name}"))?;
        Ok(Some(read.to_string()))
    };
    Ok(match command {
        UserCommand::List => Work::List,
        UserCommand::Add {
            name,
            server_data,
            client_data,
        } => {
            let change = Change {
                server_data: json("--server-data", server_data)?,
                client_data: json("--client-data", client_data)?,
                password: password("add", &name)?,
            };
            Work::Add(name, change)
        }
        UserCommand::SetPassword { name } => {
            let change = Change {
                password: password("set-password", &name)?,
                ..Change::default()
            };
            Work::SetPassword(name, change)
        }
        UserCommand::Remove { name } => Work::Remove(name),
    })
}

fn json(flag: &str, text: Option<String>) -> Result<Option<Value>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let value = serde_json::from_str(&text);
    let value = value.map_err(|error| {
        Failure::new(Exit::Configuration, format!("{flag} is not JSON: {error}"))
    })?;
    Ok(Some(value))
}

impl Work {
    /// Runs the command and returns the text to print.
    async fn run(self, users: &Arc<Users>) -> Result<String, UserError> {
        match self {
            Self::List => list(users).await,
            Self::Add(name, change) => {
                users.add(&name, change).await?;
                Ok(format!("added {name:?}\n"))
            }
            Self::SetPassword(name, change) => {
                // No other process changes users between these two steps.
                users.read(&name).await?.ok_or(UserError::Missing)?;
                users.put(&name, change).await?;
                Ok(format!("changed {name:?}\n"))
            }
            Self::Remove(name) => {
                users.delete(&name).await?;
                Ok(format!("removed {name:?}\n"))
            }
        }
    }
}

/// All names, one per line. A name contains no line end.
async fn list(users: &Users) -> Result<String, UserError> {
    let mut text = String::new();
    let mut after: Option<String> = None;
    loop {
        let (names, more) = users.list(after.as_deref()).await?;
        for name in &names {
            text.push_str(name);
            text.push('\n');
        }
        after = names.into_iter().next_back();
        if !more || after.is_none() {
            return Ok(text);
        }
    }
}

fn refused(error: UserError) -> Failure {
    let exit = match error {
        UserError::Taken
        | UserError::Missing
        | UserError::InvalidName
        | UserError::InvalidPassword => Exit::Configuration,
        UserError::Broken | UserError::HeldOff | UserError::Unavailable(_) => Exit::DataFolder,
    };
    Failure::new(exit, error.to_string())
}
