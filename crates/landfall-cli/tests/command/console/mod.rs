//! The web console: pages, actions, access, escaping, and a real browser.

mod access;
mod accessible;
mod actions;
mod browser;
mod decisions;
mod escaping;
mod forms;
mod live;
mod operator;
mod pages;
mod screenshots;
mod visitor;
