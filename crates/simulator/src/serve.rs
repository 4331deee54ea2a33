//! Starts the simulator on a separate thread and a real port.

use crate::connection;
use crate::server::Server;
use crate::truth::Truth;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

/// Listen backlog: a burst of thousands of connections must not lose SYNs.
const BACKLOG: u32 = 4096;

/// Why the simulator failed to start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The address cannot be listened on.
    #[error(
        "the simulator cannot listen on {addr}: {source}; choose another port, or 0 for a free one"
    )]
    Listen {
        /// The requested address.
        addr: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused a thread, a timer or an event queue.
    #[error("the simulator cannot start its threads: {0}")]
    Start(io::Error),
}

/// A running simulator. Dropping it stops the simulator and closes its connections.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    truth: Truth,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// The address that it listens on, with the actual port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its truth log.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Stops it and waits until its thread has ended.
    pub fn stop(self) {}
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

/// Starts a simulator that listens on `listen` (port 0: any free one) and logs to `truth`.
///
/// Jitter, faults and text are random and derive from `seed`. Returns when connections are accepted.
pub fn start(
    config: &Simulator,
    seed: Seed,
    listen: SocketAddr,
    truth: Truth,
) -> Result<Running, SimError> {
    let (ready, started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let (config, log) = (config.clone(), truth.clone());
    let thread = std::thread::Builder::new()
        .name("simulator".into())
        .spawn(move || {
            let failed = match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
            {
                Ok(runtime) => tokio::task::LocalSet::new()
                    .block_on(&runtime, run(config, seed, log, listen, &ready, stopped)),
                Err(error) => Err(SimError::Start(error)),
            };
            if let Err(error) = failed {
                // After a successful start, this has no receiver.
                let _ = ready.send(Err(error));
            }
        });
    let thread = thread.map_err(SimError::Start)?;
    let addr = started.recv().unwrap_or_else(|_| {
        Err(SimError::Start(io::Error::other(
            "its thread ended at once",
        )))
    })?;
    Ok(Running {
        addr,
        truth,
        stop: Some(stop),
        thread: Some(thread),
    })
}

type Ready = mpsc::Sender<Result<SocketAddr, SimError>>;

/// Runs the server until it is stopped.
async fn run(
    config: Simulator,
    seed: Seed,
    truth: Truth,
    listen: SocketAddr,
    ready: &Ready,
    stopped: oneshot::Receiver<()>,
) -> Result<(), SimError> {
    let (listener, addr) = bind(listen).map_err(|source| SimError::Listen {
        addr: listen,
        source,
    })?;
    let server = Rc::new(Server::new(&config, seed, &truth));
    let _ = ready.send(Ok(addr));
    tokio::select! {
        _ = stopped => Ok(()),
        error = server.steps() => Err(SimError::Start(error)),
        () = accept(&server, listener) => Ok(()),
    }
}

fn bind(listen: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if listen.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    let listener = socket.listen(BACKLOG)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

async fn accept(server: &Rc<Server>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it the kernel would delay small writes. A failure means that the socket is closed.
                let _ = stream.set_nodelay(true);
                tokio::task::spawn_local(connection::serve(server.clone(), stream));
            }
            // Most likely out of file descriptors, until other connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
