//! Socket.IO on socketioxide, as its documentation shows it with axum. Usage: socketioxide-rival PORT
//!
//! It does what `../rooms.mjs` does for the other Socket.IO rivals. `TcpListener::bind` asks for no backlog; axum
//! accepts fast enough for the generator's 256 openings at a time. TCP_NODELAY is set, as axum's page recommends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::serve::ListenerExt;
use serde_json::Value;
use socketioxide::SocketIo;
use socketioxide::extract::{AckSender, Data, SocketRef};
use tokio::net::TcpListener;

/// Messages that may wait for a socket. Further ones are lost, and with the default of 128 that is most of a large
/// round.
const WAITING_MAX: usize = 10_000;

/// The provider of each name: the last one that registered.
type Providers = Arc<Mutex<HashMap<String, SocketRef>>>;

#[tokio::main]
async fn main() {
    let port: u16 = std::env::args()
        .nth(1)
        .and_then(|port| port.parse().ok())
        .expect("usage: socketioxide-rival PORT");
    let providers = Providers::default();
    let (layer, io) = SocketIo::builder()
        .max_buffer_size(WAITING_MAX)
        .build_layer();
    // The handler's future is spawned, and a `join` directly after the login would find no handler. The function's
    // work before it returns its future is done before the next message is read.
    io.ns("/", move |socket: SocketRef| {
        serve(&socket, providers.clone());
        std::future::ready(())
    });
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("a free port");
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("TCP_NODELAY"));
    let app = axum::Router::new().layer(layer);
    axum::serve(listener, app).await.expect("the server ends");
}

fn serve(socket: &SocketRef, providers: Providers) {
    socket.on(
        "join",
        async |socket: SocketRef, Data::<(Vec<String>,)>((rooms,)), done: AckSender| {
            socket.join(rooms);
            done.send(&()).ok();
        },
    );
    socket.on(
        "publish",
        async |socket: SocketRef, Data::<(String, Value)>((room, value))| {
            socket.to(room.clone()).emit(room, &value).await.ok();
        },
    );
    let offered = providers.clone();
    socket.on(
        "provide",
        async move |socket: SocketRef, Data(name): Data<String>, done: AckSender| {
            offered.lock().expect("no panic").insert(name, socket);
            done.send(&()).ok();
        },
    );
    socket.on(
        "request",
        async move |Data::<(String, Value)>((name, value)), answer: AckSender| {
            let provider = providers.lock().expect("no panic").get(&name).cloned();
            let Some(provider) = provider else { return };
            let Ok(answers) = provider.emit_with_ack::<_, Value>(&name, &value) else {
                return;
            };
            if let Ok(value) = answers.await {
                answer.send(&value).ok();
            }
        },
    );
}
