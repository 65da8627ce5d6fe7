//! The processes of a soak, as whoever kills them sees them.

use std::path::PathBuf;

use landfall::{Error, ErrorKind, Result};
use tokio::process::Command;

use super::part::{Part, Play};
use crate::history::Event;
use crate::life::{Death, Life};

/// All processes, those that are alive and what was left of the others.
#[derive(Debug)]
pub struct Cast {
    program: PathBuf,
    /// What all of them are told; each gets its own play and seed.
    part: Part,
    actors: Vec<Actor>,
    /// What each life said, one after the other.
    pub graves: Vec<Vec<Event>>,
    /// Who ended without having been killed or told to: always a fault.
    pub gave_up: Vec<String>,
}

#[derive(Debug)]
struct Actor {
    play: Play,
    life: Option<Life>,
    is_paused: bool,
}

impl Cast {
    /// `program play JSON` plays a part.
    pub fn new(program: PathBuf, part: Part) -> Self {
        Self { program, part, actors: Vec::new(), graves: Vec::new(), gave_up: Vec::new() }
    }

    pub fn add(&mut self, play: Play) -> Result<usize> {
        self.actors.push(Actor { play, life: None, is_paused: false });
        let number = self.actors.len() - 1;
        self.start(number)?;
        Ok(number)
    }

    /// Those that run right now and whose play is like this.
    pub fn running(&self, like: impl Fn(Play) -> bool) -> Vec<usize> {
        let runs = |actor: &Actor| actor.life.is_some() && !actor.is_paused && like(actor.play);
        (0..self.actors.len()).filter(|number| runs(&self.actors[*number])).collect()
    }

    /// Starts a new process in its place, if there is none.
    pub fn start(&mut self, number: usize) -> Result<()> {
        let actor = &mut self.actors[number];
        if actor.life.is_some() {
            return Ok(());
        }
        self.part.seed += 1;
        let part = Part { play: actor.play, ..self.part.clone() };
        let mut command = Command::new(&self.program);
        command.arg("play").arg(serde_json::json!(part).to_string());
        *actor = Actor { play: actor.play, life: Some(Life::spawn(command)?), is_paused: false };
        Ok(())
    }

    pub async fn kill(&mut self, number: usize) {
        if let Some(life) = self.actors[number].life.take() {
            let death = life.killed_after(std::time::Duration::ZERO).await;
            self.bury(number, death);
        }
    }

    pub async fn pause(&mut self, number: usize) {
        if let Some(life) = &self.actors[number].life {
            life.pause().await;
            self.actors[number].is_paused = true;
        }
    }

    pub fn resume(&mut self, number: usize) {
        if let Some(life) = &self.actors[number].life {
            life.resume();
            self.actors[number].is_paused = false;
        }
    }

    /// Notices who has ended by itself. They are not started again: the soak has failed.
    pub async fn look_after(&mut self) {
        for number in 0..self.actors.len() {
            let Some(life) = &mut self.actors[number].life else { continue };
            if life.is_over().await
                && let Some(life) = self.actors[number].life.take()
            {
                let death = life.ended().await;
                self.bury(number, death);
            }
        }
    }

    /// SIGTERM to everybody whose play is like this; each must end in good order. One that was started a moment ago would
    /// not know the signal yet, and is waited for.
    pub async fn stop(&mut self, like: impl Fn(Play) -> bool) {
        for number in 0..self.actors.len() {
            if !like(self.actors[number].play) {
                continue;
            }
            let Some(mut life) = self.actors[number].life.take() else { continue };
            if !life.is_over().await {
                life.ready().await;
            }
            let death = life.stopped().await;
            if death.events.last() != Some(&Event::Stopped) {
                self.gave_up.push(self.describe(number, &death));
            }
            self.graves.push(death.events);
        }
    }

    /// Whoever is alive has begun its play.
    pub async fn ready(&self) {
        for life in self.actors.iter().filter_map(|actor| actor.life.as_ref()) {
            life.ready().await;
        }
    }

    /// How many messages the one with this number knows to be committed.
    pub fn count_ok(&self, number: usize) -> usize {
        let count = |life: &Life| life.count(|event| matches!(event, Event::Ok { .. }));
        self.actors[number].life.as_ref().map_or(0, count)
    }

    pub fn is_alive(&self, number: usize) -> Result<()> {
        match &self.actors[number].life {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Internal, self.gave_up.join("; "))),
        }
    }

    fn bury(&mut self, number: usize, death: Death) {
        if !death.was_killed() {
            self.gave_up.push(self.describe(number, &death));
        }
        self.graves.push(death.events);
    }

    fn describe(&self, number: usize, death: &Death) -> String {
        let last: Vec<_> = death.complaints.iter().rev().take(5).rev().cloned().collect();
        format!("{:?} ended with {}: {}", self.actors[number].play, death.status, last.join(" / "))
    }
}
