//! Writes the pictures of `docs/operate/console.md`: with `LANDFALL_SCREENSHOTS=FOLDER`, every page as a PNG file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::super::redrives::receiver;
use super::super::support::Sandbox;
use super::accessible::full_pages;
use super::browser::Browser;

/// Every page renders its heading and its footer; with a folder, the picture is kept.
#[tokio::test]
async fn every_page_has_a_picture() {
    let sandbox = Sandbox::new();
    let (receiver, _healthy) = receiver().await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    let Some(browser) = Browser::start(&daemon).await else { return };
    let pages = full_pages(&daemon).await;
    let folder = std::env::var_os("LANDFALL_SCREENSHOTS").map(std::path::PathBuf::from);
    let mut shots: Vec<(String, &str, u32, &str)> =
        pages.iter().map(|(name, path)| ((*name).to_owned(), path.as_str(), 1200, "light")).collect();
    for (name, path) in pages.iter().filter(|(name, _)| ["now", "message"].contains(name)) {
        shots.push((format!("{name}-dark"), path, 1200, "dark"));
        shots.push((format!("{name}-phone"), path, 390, "light"));
    }
    for (name, path, width, theme) in shots {
        let height = if width < 600 { 844 } else { 780 };
        browser.look(width, height, theme).await;
        browser.open(path).await;
        let parts = "document.querySelector('main h1') && document.querySelector('footer time') && 'whole'";
        assert_eq!(browser.eval(parts).await, "whole", "{path}");
        let picture = browser.command("Page.captureScreenshot", json!({"format": "png"})).await;
        let picture = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        assert!(picture.starts_with(b"\x89PNG"), "{path}");
        if let Some(folder) = &folder {
            std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
        }
    }
}
