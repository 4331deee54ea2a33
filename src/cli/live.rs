//! `--live`: a full-screen view of the run on stderr. The terminal is restored in any case, including a panic.

mod panels;
mod state;
#[cfg(test)]
mod tests;

use crate::cli::display::{Display, WatchedRun};
use crate::cli::exit::Exit;
use crate::cli::live::panels::{Painter, Palette};
use crate::cli::live::state::View;
use crate::cli::terminal::Terminal;
use crate::run::event::Event;
use crate::run::stop::{Level, Stop};
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

/// Interval between redraws without events.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Whether the full screen is active; it is left once.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// stderr without errors: ratatui panics if it cannot hide the cursor.
struct InfallibleStderr(Stderr);

impl Write for InfallibleStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// The full screen of a run.
pub struct LiveScreen {
    screen: ratatui::Terminal<CrosstermBackend<BufWriter<InfallibleStderr>>>,
    view: View,
    began: Instant,
    last_draw: Instant,
    /// The screen shows the current state.
    up_to_date: bool,
    stop: Stop,
    events: Sender<Event>,
}

impl LiveScreen {
    /// Switches the terminal to the full screen.
    ///
    /// # Errors
    /// The terminal does not support it; it is unchanged then.
    pub fn enter(watched: &WatchedRun<'_>) -> io::Result<LiveScreen> {
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        enable_raw_mode()?;
        ACTIVE.store(true, Ordering::Release);
        // Not ratatui's `clear`: it queries the cursor position, which not every terminal answers.
        let entered = execute!(stderr(), EnterAlternateScreen, Clear(ClearType::All));
        let screen = entered.and_then(|()| {
            ratatui::Terminal::new(CrosstermBackend::new(BufWriter::new(InfallibleStderr(
                stderr(),
            ))))
        });
        let screen = screen.inspect_err(|_| leave())?;
        Ok(LiveScreen {
            screen,
            view: View::new(watched.plan),
            began: watched.began,
            last_draw: watched.began,
            up_to_date: false,
            stop: watched.stop.clone(),
            events: watched.events.clone(),
        })
    }

    /// The display, which prints the permanent lines on `terminal` after the screen is left.
    pub fn on<'a, 'b>(self, terminal: &'a mut Terminal<'b>) -> LiveDisplay<'a, 'b> {
        LiveDisplay {
            live: self,
            terminal,
        }
    }

    fn handle_keys(&mut self) {
        while has_input() && poll(Duration::ZERO).unwrap_or(false) {
            match read() {
                Ok(Input::Key(key)) if key.kind == KeyEventKind::Press => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    if key.code == KeyCode::Char('q') || (control && key.code == KeyCode::Char('c'))
                    {
                        // As the third signal.
                        if self.stop.level() == Level::Now {
                            leave();
                            std::process::exit(Exit::Interrupted.code().into());
                        }
                        self.stop.press();
                        // The receiver outlives the display.
                        let _ = self.events.send(Event::Stopping(self.stop.level()));
                    }
                }
                Ok(Input::Resize(..)) => self.up_to_date = false,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn draw(&mut self, color: bool) {
        let at = self.began.elapsed().as_secs_f64();
        // A closed terminal must not end the run.
        let _ = self.screen.draw(|frame| draw(&self.view, at, color, frame));
        self.last_draw = Instant::now();
        self.up_to_date = true;
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether an open terminal has input. On a closed one, crossterm would read forever.
fn has_input() -> bool {
    let (stdin, stderr) = (io::stdin(), stderr());
    let terminal = if stdin.is_terminal() {
        stdin.as_fd()
    } else {
        stderr.as_fd()
    };
    let mut polled = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
    let events =
        rustix::event::poll(&mut polled, Some(&Timespec::default())).map(|_| polled[0].revents());
    events.is_ok_and(|events| {
        events.contains(PollFlags::IN) && !events.intersects(PollFlags::HUP | PollFlags::ERR)
    })
}

/// Restores the terminal, if the full screen is active.
pub fn leave() {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        // An error cannot be shown on this terminal either.
        let _ = execute!(stderr(), LeaveAlternateScreen, ShowCursor);
        let _ = disable_raw_mode();
    }
}

/// The display of a run on the full screen.
pub struct LiveDisplay<'a, 'b> {
    live: LiveScreen,
    terminal: &'a mut Terminal<'b>,
}

impl Display for LiveDisplay<'_, '_> {
    fn show(&mut self, event: &Event) {
        let live = &mut self.live;
        live.view.apply(event, live.began.elapsed().as_secs_f64());
        live.up_to_date = false;
    }

    fn tick(&mut self) {
        // A panic of another thread has left the screen.
        if ACTIVE.load(Ordering::Acquire) {
            self.live.handle_keys();
            if !self.live.up_to_date || self.live.last_draw.elapsed() >= REDRAW_INTERVAL {
                self.live.draw(self.terminal.err_color);
            }
        }
    }

    fn finish(&mut self) {
        leave();
        self.terminal.update_width();
        self.live
            .view
            .transcript
            .iter()
            .for_each(|line| self.terminal.status(line));
    }
}

/// From this width, the cases are beside the charts.
const WIDE: u16 = 140;
/// A smaller window shows plain lines only.
const MIN_WIDTH: u16 = 50;
const MIN_HEIGHT: u16 = 18;

/// Draws the state of the run `at` seconds after its beginning.
pub fn draw(view: &View, at: f64, color: bool, frame: &mut Frame<'_>) {
    let area = frame.area();
    let mut painter = Painter {
        view,
        palette: Palette { color },
        frame,
    };
    let [head, plan, part, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    painter.head(at, head);
    painter.plan_progress(plan);
    painter.case_progress(part);
    painter.foot(foot);
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        painter.plain_values(body);
    } else if area.width >= WIDE {
        let [left, _, right] = Layout::horizontal([
            Constraint::Fill(3),
            Constraint::Length(2),
            Constraint::Fill(2),
        ])
        .areas(body);
        draw_charts(&mut painter, left);
        let [cases, notes] =
            Layout::vertical([Constraint::Fill(3), Constraint::Fill(1)]).areas(right);
        painter.cases(cases);
        painter.notes(notes);
    } else {
        // About half of the rows above the minimum go to the charts, the rest to the lists.
        let extra_rows = body.height.saturating_sub(20);
        let [charts, cases, notes] = Layout::vertical([
            Constraint::Fill(1),
            Constraint::Length(4 + extra_rows / 3),
            Constraint::Length(3 + extra_rows / 8),
        ])
        .areas(body);
        draw_charts(&mut painter, charts);
        painter.cases(cases);
        painter.notes(notes);
    }
}

/// The percentiles, the current values and the four charts.
fn draw_charts(painter: &mut Painter<'_, '_>, area: Rect) {
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(5),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    let halves = |area| {
        Layout::horizontal([
            Constraint::Fill(1),
            Constraint::Length(2),
            Constraint::Fill(1),
        ])
        .areas(area)
    };
    let [left, _, right] = halves(top);
    painter.latency(left);
    painter.current_values(right);
    let [left, _, right] = halves(middle);
    painter.tokens_chart(left);
    painter.in_flight_chart(right);
    let [left, _, right] = halves(bottom);
    painter.ttft_chart(left);
    painter.errors_chart(right);
}
