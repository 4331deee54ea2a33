//! The simulator as a server of its own thread, on a real port.

use crate::clock::{Clock, Timer};
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

/// Connections that may wait to be accepted: a burst of thousands must not lose its SYNs.
const BACKLOG: u32 = 4096;

/// Why the simulator is not running.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The address cannot be listened on.
    #[error("the simulator cannot listen on {addr}: {source}; choose another port, or 0 for a free one")]
    Listen {
        /// The requested address.
        addr: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused a thread, a timer or an event queue.
    #[error("the simulator cannot start: {0}")]
    Start(io::Error),
}

/// A running simulator. It stops, and cuts its connections, when this is dropped.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    truth: Truth,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// The address that it listens on, its port never 0.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its log.
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
            // A panic there has been printed already, and nothing here can act on it.
            let _ = thread.join();
        }
    }
}

/// Starts a simulator that listens on `listen` (port 0: any free one) and logs to `truth`.
///
/// All that it does at random, jitter, faults and text, derives from `seed`. It returns when connections are accepted.
pub fn start(config: &Simulator, seed: Seed, listen: SocketAddr, truth: Truth) -> Result<Running, SimError> {
    let (ready, started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let (config, log) = (config.clone(), truth.clone());
    let thread = std::thread::Builder::new().name("simulator".into()).spawn(move || {
        let failed = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, host((config, seed, log), listen, &ready, stopped)),
            Err(error) => Err(SimError::Start(error)),
        };
        if let Err(error) = failed {
            // Nobody listens any more where it had started well.
            let _ = ready.send(Err(error));
        }
    });
    let thread = thread.map_err(SimError::Start)?;
    let addr = started.recv().unwrap_or_else(|_| Err(SimError::Start(io::Error::other("its thread ended at once"))))?;
    Ok(Running { addr, truth, stop: Some(stop), thread: Some(thread) })
}

type Ready = mpsc::Sender<Result<SocketAddr, SimError>>;

/// Runs the server until it is stopped.
async fn host(
    (config, seed, truth): (Simulator, Seed, Truth),
    listen: SocketAddr,
    ready: &Ready,
    stopped: oneshot::Receiver<()>,
) -> Result<(), SimError> {
    let (listener, addr) = bind(listen).map_err(|source| SimError::Listen { addr: listen, source })?;
    let timer = Timer::new(Clock::since(truth.origin())).map_err(SimError::Start)?;
    let server = Rc::new(Server::new(&config, seed, &truth));
    let _ = ready.send(Ok(addr));
    tokio::select! {
        _ = stopped => Ok(()),
        error = server.steps(timer) => Err(SimError::Start(error)),
        () = accept(&server, listener) => Ok(()),
    }
}

fn bind(listen: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
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
                // Without it the kernel would hold small writes back; a socket that refuses is gone already.
                let _ = stream.set_nodelay(true);
                tokio::task::spawn_local(connection::serve(server.clone(), stream));
            }
            // Out of file descriptors, most likely: others have to end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
