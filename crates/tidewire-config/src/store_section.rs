//! The options of one store, in the section `store` and in each section of `stores`.

use std::path::PathBuf;
use std::time::Duration;

use super::option::{Traits, section};
use super::value::{Auto, ByteCount, Limited, OptionalPath, Secret, choice};

choice! {
    /// Kinds of stores.
    StoreKind {
        /// An SQLite database in the data folder.
        Sqlite = "sqlite",
        /// Memory; all records are lost at a stop.
        Memory = "memory",
        /// A MongoDB database.
        Mongodb = "mongodb",
        /// A PostgreSQL database.
        Postgres = "postgres",
        /// Redis or Valkey.
        Redis = "redis",
    }
}

choice! {
    /// The least that an acknowledged write guarantees.
    Durability {
        /// The write is on disk and synced.
        Synced = "synced",
        /// The guarantee depends on the settings of the store's server.
        Relaxed = "relaxed",
    }
}

section! {
    /// The default store of records.
    Store {
        /// Kind of the store. `sqlite` keeps records on disk, and an acknowledged write is synced. `memory` loses everything
        /// at a stop. `mongodb`, `postgres` and `redis` (or Valkey) keep records on a separate server. See `docs/stores.md`.
        kind: StoreKind = StoreKind::Sqlite;
        /// The least that an acknowledged write guarantees. With `synced` the server refuses to start if the store's server
        /// may acknowledge writes that it has not synced, or does not report whether it syncs; the error names the setting to
        /// change. With `relaxed` it starts, with a warning in `/ready`, the metrics, the first screen and the log.
        durability: Durability = Durability::Synced;
        /// Timeout of one request to a remote store. When it passes, the connection is replaced.
        timeout: Duration = Duration::from_secs(10);
        /// How often the server reads all stored records and compares them with their checksums. With `never` only `tidewire
        /// store check` does this. The option has no effect on a store in memory.
        scrub_interval: Limited = Limited::After(Duration::from_secs(86_400));
        /// Maximum bytes of names and values that this check reads per second.
        scrub_bytes_per_second: ByteCount = ByteCount(4 << 20);
        /// The MongoDB database of `mongodb`.
        mongodb: StoreServer = StoreServer::default(), Traits::NONE.described();
        /// The PostgreSQL database of `postgres`.
        postgres: StoreServer = StoreServer::default(), Traits::NONE.described();
        /// The Redis or Valkey server of `redis`.
        redis: StoreServer = StoreServer::default(), Traits::NONE.described();
        /// Data folder.
        path: PathBuf = PathBuf::from("./tidewire-data"), Traits::NONE.flag("data");
        /// Bytes of unused records that the node keeps in memory. `auto` is an eighth of the memory of the container or
        /// machine, but at most 64MiB for each shard, and at most a 32nd of `limits.memory_bytes_max` if that is set.
        cache: Auto<ByteCount> = Auto::Auto;
    }
}

section! {
    /// A remote server that keeps records.
    StoreServer {
        /// Address of the server, without a password. Forms are `mongodb://user@host:27017/database`,
        /// `postgresql://user@host:5432/database`, `redis://host:6379/0`, or `rediss://` for TLS. Connections to MongoDB and
        /// PostgreSQL on other machines use TLS, unless the address has `?tls=false` or `?sslmode=disable`.
        url: String = String::new();
        /// Password for the server. Prefer to set it by the environment.
        password: Secret = Secret::default(), Traits::NONE.secret();
        /// File with the password, instead of `password`. White space at its end is ignored.
        password_file: OptionalPath = OptionalPath(None);
        /// File with the certificates (PEM) of the authorities to trust. It replaces the list of the system, or with MongoDB
        /// the list of Mozilla.
        ca: OptionalPath = OptionalPath(None);
    }
}
