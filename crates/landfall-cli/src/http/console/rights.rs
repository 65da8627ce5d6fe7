//! What the visitor may do, and the keys of the pages.

use axum::response::Response;
use maud::html;

use super::page::{Page, Visitor};
use super::view;
use crate::config::Role;

/// The lowest role, in English and Chinese.
const RIGHTS: [(Role, &str, &str); 8] = [
    (Role::Viewer, "see figures, lists, errors, the audit trail", "查看数据、列表、错误和审计记录"),
    (Role::PayloadReader, "see payloads and headers, and search payloads", "查看和搜索消息内容与消息头"),
    (Role::Operator, "rehearse and start redrives; pause, resume and stop them", "预演和启动重投；暂停、继续和停止"),
    (Role::Operator, "ignore, release and discard messages", "忽略、解除忽略和丢弃消息"),
    (Role::Operator, "edit the payload of a parked message", "修改已停放消息的内容"),
    (Role::Operator, "acknowledge, mute and resolve failures; mute alerts", "认领、静音和解决故障；静音告警"),
    (Role::Operator, "block and allow redrives of a key", "阻止和允许重投某个键"),
    (Role::Operator, "send messages through the API", "通过 API 发送消息"),
];

/// Keys, in English and Chinese.
const KEYS: [(&str, &str, &str); 9] = [
    ("/", "search", "搜索"),
    ("j k", "next and previous row", "下一行、上一行"),
    ("x", "select the row", "选择该行"),
    ("Enter", "open the row", "打开该行"),
    ("r", "redrive: opens the rehearsal", "重投：打开预演"),
    ("g n, g f, g m, g r", "go to Now, Failures, Messages, Redrives", "前往 现在、故障、消息、重投"),
    ("g l, g e, g a, g s", "go to Flow, Alerts, Audit, Access", "前往 流转、告警、审计、权限"),
    ("?", "these keys", "本帮助"),
    ("Esc", "leave a field", "离开输入框"),
];

pub(super) async fn page(visit: Visitor) -> Response {
    let title = visit.say("Access", "权限");
    let main = html! {
        h1 { (title) }
        @if visit.is_open {
            p { (visit.say("No token is configured, so you may do everything.", "没有配置令牌，因此您拥有全部权限。")) }
        } @else if let Some(session) = &visit.session {
            dl.facts {
                dt { (visit.say("Role", "角色")) } dd { span.badge { (session.role.as_str()) } }
                dt { (visit.say("Name in the audit trail", "审计中的名称")) } dd { bdi { (visit.actor()) } }
                @if let Some(expires) = session.expires { dt { (visit.say("Session ends", "会话结束")) } dd {
                    (view::time(&visit, expires)) } }
            }
        }
        table {
            thead { tr { th scope="col" { (visit.say("You may", "您可以")) } th scope="col" { (visit.say("Needs", "需要"))
                } th scope="col" { span.hidden { (visit.say("Allowed", "是否允许")) } } } }
            tbody { @for (role, english, chinese) in RIGHTS {
                tr { td.wide { (visit.say(english, chinese)) } td { code { (role.as_str()) } }
                    td { @if visit.may(role) { span.badge.good { (visit.say("yes", "可以")) } } @else {
                        span.badge.quiet { (visit.say("no", "不可以")) } } } }
            } }
        }
    };
    Page { title: title.into(), section: "/console/access", main, twin: None, command: None }.render(&visit)
}

pub(super) async fn help(visit: Visitor) -> Response {
    let title = visit.say("Keyboard", "键盘");
    let main = html! {
        h1 { (title) }
        table { tbody { @for (key, english, chinese) in KEYS {
            tr { th scope="row" { kbd { (key) } } td.wide { (visit.say(english, chinese)) } }
        } } }
    };
    Page { title: title.into(), section: "", main, twin: None, command: None }.render(&visit)
}
