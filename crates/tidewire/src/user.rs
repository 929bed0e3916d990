//! `tidewire user`: the users of the record store, looked after while no server has it. While one has, its admin API does
//! the same and ends the sessions that a change concerns.

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

/// What is to be done with everything that was asked for on standard input and as JSON.
enum Work {
    List,
    Add(String, Change),
    SetPassword(String, Change),
    Remove(String),
}

/// Does it on the store that is configured.
///
/// # Errors
/// A server has the store, it can't be opened, or the user can't be changed so.
pub fn run(plan: &Plan, command: UserCommand) -> Result<Exit, Failure> {
    let work = read(command)?;
    let store = &plan.config.store;
    let instead = match store.kind {
        StoreKind::Sqlite => None,
        StoreKind::Memory => Some("memory has no users while no server runs"),
        // No lock says whether one runs elsewhere, and to open its store would take it away from it.
        StoreKind::Mongodb => Some("mongodb may have a server that runs elsewhere"),
        StoreKind::Postgres => Some("postgres may have a server that runs elsewhere"),
        StoreKind::Redis => Some("redis may have a server that runs elsewhere"),
    };
    if let Some(reason) = instead {
        let line = format!("store.kind: {reason}; use its admin API (docs/admin-api.md)");
        return Err(Failure::new(Exit::Configuration, line));
    }
    // Only who adds a user may mean a store that is not there yet.
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
                "{error}; a server that runs changes its users by its admin API (docs/admin-api.md)"
            ),
            _ => error.to_string(),
        };
        Failure::new(Exit::DataFolder, line)
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| unavailable(&error))?;
    let OpenStore { store, opened, .. } = open_store(plan, None, &folder, runtime.handle())?;
    // No shard asks it for anything.
    let threads = StoreThreads::start(store, opened.term(), Arc::new(|_, _| {}));
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

/// Reads what belongs to a command, before anything is opened.
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
        Failure::new(Exit::Configuration, format!("{flag} is no JSON: {error}"))
    })?;
    Ok(Some(value))
}

impl Work {
    /// Gives what is to be printed.
    async fn run(self, users: &Arc<Users>) -> Result<String, UserError> {
        match self {
            Self::List => list(users).await,
            Self::Add(name, change) => {
                users.add(&name, change).await?;
                Ok(format!("added {name:?}\n"))
            }
            Self::SetPassword(name, change) => {
                // Nobody else changes users meanwhile.
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

/// All names, one on each line; they have no line ends.
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
