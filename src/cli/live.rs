//! `--live`: the run on a full screen, drawn on stderr. However it ends, the terminal is given back as it was.

mod panels;
mod state;
#[cfg(test)]
mod tests;

use crate::cli::exit::Exit;
use crate::cli::live::panels::Ink;
use crate::cli::live::state::View;
use crate::cli::progress::{Show, WatchedRun};
use crate::cli::terminal::Terminal;
use crate::run::event::Event;
use crate::run::execution::stop::{Level, Stop};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show as ShowCursor;
use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout, Rect};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, BufWriter, IsTerminal, Stderr, Write, stderr};
use std::os::fd::AsFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Between two pictures, where nothing happens.
const REDRAW: Duration = Duration::from_millis(250);

/// Whether the full screen is up: whoever takes it down does so once.
static UP: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// stderr, whose end is no error: ratatui panics where it cannot say that the cursor stays hidden.
struct Picture(Stderr);

impl Write for Picture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// The screen of a run.
pub struct Live {
    screen: ratatui::Terminal<CrosstermBackend<BufWriter<Picture>>>,
    view: View,
    began: Instant,
    drawn: Instant,
    fresh: bool,
    stop: Stop,
    events: Sender<Event>,
}

impl Live {
    /// Takes the screen over.
    ///
    /// # Errors
    /// Where the terminal cannot be driven so; it is as it was then.
    pub fn enter(watched: &WatchedRun<'_>) -> io::Result<Live> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        enable_raw_mode()?;
        UP.store(true, Ordering::Release);
        // ratatui's own `clear` first asks the terminal where the cursor stands, and not every terminal answers.
        let entered = execute!(stderr(), EnterAlternateScreen, Clear(ClearType::All));
        let screen = entered.and_then(|()| ratatui::Terminal::new(CrosstermBackend::new(BufWriter::new(Picture(stderr())))));
        let screen = screen.inspect_err(|_| leave())?;
        let (stop, events) = (watched.stop.clone(), watched.events.clone());
        let drawn = watched.began;
        Ok(Live { screen, view: View::of(watched.plan), began: watched.began, drawn, fresh: false, stop, events })
    }

    /// The display that says on this terminal what stays said, once the screen is given back.
    pub fn on<'a, 'b>(self, terminal: &'a mut Terminal<'b>) -> Screen<'a, 'b> {
        Screen { live: self, terminal }
    }

    fn keys(&mut self) {
        while key_waits() && poll(Duration::ZERO).unwrap_or(false) {
            match read() {
                Ok(Input::Key(key)) if key.kind == KeyEventKind::Press => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    if key.code == KeyCode::Char('q') || (control && key.code == KeyCode::Char('c')) {
                        // As the third signal does.
                        if self.stop.level() == Level::Now {
                            leave();
                            std::process::exit(Exit::Interrupted.code().into());
                        }
                        self.stop.press();
                        // The display lives as long as the line to it.
                        let _ = self.events.send(Event::Stopping(self.stop.level()));
                    }
                }
                Ok(Input::Resize(..)) => self.fresh = false,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn draw(&mut self, color: bool) {
        let at = self.began.elapsed().as_secs_f64();
        // A terminal that went away is no reason to lose the run.
        let _ = self.screen.draw(|frame| draw(&self.view, at, color, frame));
        (self.drawn, self.fresh) = (Instant::now(), true);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether there is input on a terminal that is still there. crossterm reads the end of a closed one for ever.
fn key_waits() -> bool {
    let (stdin, stderr) = (io::stdin(), stderr());
    let terminal = if stdin.is_terminal() { stdin.as_fd() } else { stderr.as_fd() };
    let mut asked = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
    let found = rustix::event::poll(&mut asked, Some(&Timespec::default())).map(|_| asked[0].revents());
    found.is_ok_and(|found| found.contains(PollFlags::IN) && !found.intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Gives the terminal back, if it was taken.
pub fn leave() {
    if UP.swap(false, Ordering::AcqRel) {
        // What cannot be restored cannot be told on this terminal either.
        let _ = execute!(stderr(), LeaveAlternateScreen, ShowCursor);
        let _ = disable_raw_mode();
    }
}

/// A screen and the terminal beneath it.
pub struct Screen<'a, 'b> {
    live: Live,
    terminal: &'a mut Terminal<'b>,
}

impl Show for Screen<'_, '_> {
    fn see(&mut self, event: &Event) {
        let live = &mut self.live;
        live.view.see(event, live.began.elapsed().as_secs_f64());
        live.fresh = false;
    }

    fn tick(&mut self) {
        // After a panic elsewhere the screen is no longer ours.
        if UP.load(Ordering::Acquire) {
            self.live.keys();
            if !self.live.fresh || self.live.drawn.elapsed() >= REDRAW {
                self.live.draw(self.terminal.err_color);
            }
        }
    }

    fn end(&mut self) {
        leave();
        self.terminal.measure();
        self.live.view.transcript.iter().for_each(|line| self.terminal.say(line));
    }
}

/// From so many columns on the cases stand beside the charts.
const WIDE: u16 = 140;
/// A window smaller than this gets the bare lines alone.
const LEAST: (u16, u16) = (50, 18);

/// Draws the run as it stands `at` seconds after its beginning.
pub fn draw(view: &View, at: f64, color: bool, frame: &mut Frame<'_>) {
    let (ink, area) = (Ink(color), frame.area());
    let [head, plan, part, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    panels::head(view, at, ink, head, frame);
    panels::plan(view, ink, plan, frame);
    panels::part(view, ink, part, frame);
    panels::foot(view, ink, foot, frame);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        panels::bare(view, body, frame);
    } else if area.width >= WIDE {
        let [left, _, right] = Layout::horizontal([Constraint::Fill(3), Constraint::Length(2), Constraint::Fill(2)]).areas(body);
        figures(view, ink, left, frame);
        let [cases, notes] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(1)]).areas(right);
        panels::parts(view, ink, cases, frame);
        panels::notes(view, ink, notes, frame);
    } else {
        let rows = body.height;
        // Half of what is beyond the least goes to the charts, the rest to the lists.
        let (cases, notes) = (4 + rows.saturating_sub(20) / 3, 3 + rows.saturating_sub(20) / 8);
        let [upper, lower, last] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(cases), Constraint::Length(notes)]).areas(body);
        figures(view, ink, upper, frame);
        panels::parts(view, ink, lower, frame);
        panels::notes(view, ink, last, frame);
    }
}

/// The percentiles and the four charts.
fn figures(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let [top, middle, bottom] = Layout::vertical([Constraint::Length(5), Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let halves = |area| Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let [left, _, right] = halves(top);
    panels::latency(view, ink, left, frame);
    panels::rates(view, ink, right, frame);
    let [left, _, right] = halves(middle);
    panels::tokens(view, ink, left, frame);
    panels::in_flight(view, ink, right, frame);
    let [left, _, right] = halves(bottom);
    panels::ttft(view, ink, left, frame);
    panels::errors(view, ink, right, frame);
}
