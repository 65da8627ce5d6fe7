//! The frame of every page: navigation, notices, and a footer with the JSON twin and the command.

use axum::Extension;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Redirect, Response};
use landfall::Timestamp;
use maud::{DOCTYPE, Markup, html};

use super::access::Visit;
use super::{assets, query::Query, view};
use crate::http::problem::Raised;

/// One page, without its frame.
pub(super) struct Page {
    pub(super) title: String,
    /// The path of its entry in the navigation.
    pub(super) section: &'static str,
    pub(super) main: Markup,
    /// Where the API has the same.
    pub(super) twin: Option<String>,
    /// The command that does the same.
    pub(super) command: Option<String>,
}

/// Path, English, Chinese, and the key after `g`.
const SECTIONS: [(&str, &str, &str, &str); 8] = [
    ("/", "Now", "现在", "n"),
    ("/console/failures", "Failures", "故障", "f"),
    ("/console/messages", "Messages", "消息", "m"),
    ("/console/redrives", "Redrives", "重投", "r"),
    ("/console/flow", "Flow", "流转", "l"),
    ("/console/alerts", "Alerts", "告警", "e"),
    ("/console/audit", "Audit", "审计", "a"),
    ("/console/access", "Access", "权限", "s"),
];

pub(super) async fn to_start() -> Redirect {
    Redirect::to("/")
}

impl Page {
    pub(super) fn render(self, visit: &Visit) -> Response {
        let footer = html! {
            @if let Some(twin) = &self.twin {
                p { span.label { (visit.say("As JSON", "JSON 形式")) } " " a href=(twin) { code { (twin) } } }
            }
            @if let Some(command) = &self.command {
                p { span.label { (visit.say("As a command", "等价命令")) }
                    " " code.command data-copy=(visit.say("Copy", "复制")) { (command) } }
            }
        };
        frame(visit, &self.title, self.section, &self.main, &footer)
    }
}

fn frame(visit: &Visit, title: &str, section: &str, main: &Markup, footer: &Markup) -> Response {
    let now = Timestamp::now();
    let markup = html! {
        (DOCTYPE)
        html lang=(visit.language.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Landfall" }
                link rel="stylesheet" href=(assets::path("console.css"));
                link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
                script src=(assets::path("console.js")) defer {}
            }
            body data-section=(section) data-rendered=(now.as_millis()) {
                a.skip href="#main" { (visit.say("Skip to the content", "跳到正文")) }
                (header(visit, section))
                p.stale role="status" aria-live="polite" hidden
                    data-text=(visit.say("Live updates are lost. This page is {} old.", "实时更新已中断，本页内容是 {} 前的。"))
                    data-unreadable=(visit.say(
                        "The daemon cannot read its database. This page is {} old.",
                        "守护进程无法读取数据库，本页内容是 {} 前的。",
                    )) {}
                main id="main" tabindex="-1" { (main) }
                footer {
                    (footer)
                    p.muted {
                        (visit.say("Rendered", "生成于")) " " (view::instant(visit, now, now)) " · Landfall "
                        (env!("CARGO_PKG_VERSION")) " · "
                        a href="/console/help" { (visit.say("Keyboard", "键盘")) } " · "
                        a href="/openapi.json" { "API" }
                    }
                }
            }
        }
    };
    Html(markup.into_string()).into_response()
}

fn header(visit: &Visit, section: &str) -> Markup {
    let other = visit.language.other();
    let query = Query::of(&visit.uri).with("lang", other.code());
    html! {
        header {
            a.brand href="/" { (assets::mark()) " Landfall" }
            @if visit.session.is_some() {
                nav aria-label=(visit.say("Pages", "页面")) {
                    @for (path, english, chinese, key) in SECTIONS {
                        a href=(path) data-go=(key) aria-current=[(path == section).then_some("page")] {
                            (visit.say(english, chinese))
                        }
                    }
                }
            }
            div.who {
                @if visit.is_open {
                    span.badge.warn { (visit.say("open", "未设令牌")) }
                } @else if let Some(session) = &visit.session {
                    @if let Some(person) = &session.person { span { (person) } " " }
                    span.badge { (session.role.as_str()) }
                }
                a href=(query.to(visit.uri.path())) lang=(other.tag()) { (other.pick("English", "中文")) }
                @if !visit.is_open && visit.session.is_some() {
                    form method="post" action="/console/sign-out" {
                        (view::form_token(visit))
                        button.plain type="submit" { (visit.say("Sign out", "退出")) }
                    }
                }
            }
        }
        @if visit.is_open {
            aside.notice aria-label=(visit.say("Notice", "提示")) {
                (visit.say(
                    "This daemon has no tokens and listens on loopback only: every program on this machine may do \
                     everything. Add tokens under [auth] to change that.",
                    "此守护进程没有配置令牌，只监听回环地址：本机上的任何程序都拥有全部权限。要改变这一点，请在 [auth] 下配置令牌。",
                ))
            }
        }
    }
}

/// Leads to the page that was asked for. Browsers send no `SameSite=Strict` cookie with a link of another site. They do
/// with what follows from here.
pub(super) fn follow(visit: &Visit) -> Response {
    let target = visit.uri.path_and_query().map_or("/", |target| target.as_str());
    let markup = html! {
        (DOCTYPE)
        html lang=(visit.language.tag()) {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0;url=" (target) };
                title { "Landfall" }
            }
            body { p { a href=(target) { (visit.say("Continue", "继续")) } } }
        }
    };
    Html(markup.into_string()).into_response()
}

/// Replaces the JSON of a refusal by a page with the same status and headers.
pub(super) fn problem(visit: &Visit, raised: &Raised, response: Response) -> Response {
    let status = raised.status;
    let title = match status {
        StatusCode::CONFLICT => visit.say("It has changed in the meantime", "状态已经改变"),
        StatusCode::NOT_FOUND => visit.say("It does not exist", "不存在"),
        StatusCode::FORBIDDEN => visit.say("This is not allowed", "没有权限"),
        StatusCode::UNAUTHORIZED => visit.say("Sign in first", "请先登录"),
        StatusCode::BAD_REQUEST => visit.say("The request is not valid", "请求无效"),
        StatusCode::SERVICE_UNAVAILABLE => visit.say("Not available right now", "暂时不可用"),
        _ => raised.title,
    };
    let main = html! {
        h1 { (title) }
        p.problem role="alert" { (raised.detail) }
        @if status == StatusCode::CONFLICT {
            p { (visit.say(
                "Nothing was changed. Look at the current state, and decide again.",
                "没有做任何修改。请查看当前状态后再作决定。",
            )) }
        }
        p { a.button href="" data-back { (visit.say("Back", "返回")) } " " a href="/" {
            (visit.say("To the start", "回到首页")) } }
    };
    let (mut parts, _) = response.into_parts();
    let page = frame(visit, title, "", &main, &html! {});
    let (own, body) = page.into_parts();
    parts.headers.remove(axum::http::header::CONTENT_LENGTH);
    parts.headers.extend(own.headers);
    Response::from_parts(parts, body)
}

/// The argument of every page handler.
pub(super) type Visitor = Extension<Visit>;
