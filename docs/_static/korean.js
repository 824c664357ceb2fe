// The copy buttons of Korean pages: sphinx-copybutton has no Korean words.
"use strict";

messages.ko = {
  copy: "복사",
  copy_to_clipboard: "클립보드에 복사",
  copy_success: "복사했습니다",
  copy_failure: "복사하지 못했습니다",
};
locale = "ko";
iconCopy = iconCopy.replace(messages.en.copy_to_clipboard, messages.ko.copy_to_clipboard);
iconCheck = iconCheck.replace(messages.en.copy_success, messages.ko.copy_success);
